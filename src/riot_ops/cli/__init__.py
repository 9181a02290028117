"""The ``riot-ops`` command."""

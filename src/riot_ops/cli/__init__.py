"""The command ``riot-ops``."""

"""Fixtures of brokers, shared with the tests of the connectors."""

from tests.connectors.conftest import certificates, secured, short_pauses

__all__ = ["certificates", "secured", "short_pauses"]

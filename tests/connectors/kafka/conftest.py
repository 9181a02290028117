"""Brokers of the tests of Kafka."""

from __future__ import annotations

import itertools
import os

import pytest

from riot_ops.testing.services import Tansu
from tests.connectors.kafka.tools import Cluster

_NAMES = itertools.count()


@pytest.fixture(scope="session")
def cluster():
    """A broker: one of its own, or that of RIOT_OPS_TEST_KAFKA (``host:port,…``)."""
    servers = os.environ.get("RIOT_OPS_TEST_KAFKA")
    if servers:
        found = Cluster(servers)
        found.hides_aborted = True
        yield found
        return
    with Tansu() as broker:
        yield Cluster(broker.servers)


@pytest.fixture
def topic(cluster):
    """Make a topic with a name of its own, and return the name."""

    def make(partitions: int = 1, **config: str) -> str:
        return cluster.create(f"t{os.getpid()}-{next(_NAMES)}", partitions, **config)

    return make

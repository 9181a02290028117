"""What brokers say about partitions: which there are, where they begin and end, and where a time is."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from riot_ops.connectors.kafka.connection import Client, KafkaConnection, confluent_kafka
from riot_ops.connectors.kafka.offsets import Positions
from riot_ops.core.errors import ConfigError, ConnectorError, did_you_mean

__all__ = ["Planner"]

#: Longest wait for one answer, in seconds: a wait in the library cannot be interrupted.
STEP_S = 1.0


class Planner:
    """Asks brokers about the partitions of topics.

    Parameters
    ----------
    connection : KafkaConnection
    topics : sequence of str
        Names of topics; each must exist.
    pattern : str or None
        Regular expression of further topics.
    committed : bool
        Whether partitions end before the first open transaction.
    """

    def __init__(
        self, connection: KafkaConnection, topics: Sequence[str], pattern: str | None, *, committed: bool
    ) -> None:
        self._connection = connection
        self._topics = topics
        self._pattern = None if pattern is None else re.compile(pattern)
        self._committed = committed
        self._module = confluent_kafka()
        self._admin: Client | None = None

    @property
    def client(self) -> Client:
        """The client for questions."""
        if self._admin is None:
            self._admin = self._connection.client(self._module.admin.AdminClient)
        return self._admin

    def partitions(self, timeout_s: float | None = None) -> dict[str, list[int]]:
        """Return the numbers of the partitions of each topic.

        Raises :class:`ConnectorError` if brokers do not answer, or a topic does not exist.
        """
        cluster = self._ask(
            "the topics cannot be listed", lambda wait_s: self.client.raw.list_topics(timeout=wait_s), timeout_s
        )
        found: dict[str, list[int]] = {}
        for name in self._topics:
            topic = cluster.topics.get(name)
            if topic is None or topic.error is not None:
                why = "" if topic is None else f" ({topic.error.str()})"
                raise ConnectorError(
                    f"Kafka at {self._connection.address}: the topic {name!r} does not exist, or the user may not see "
                    f"it{why}; create it, or check its name{did_you_mean(name, cluster.topics)}"
                )
            found[name] = sorted(topic.partitions)
        if self._pattern is not None:
            for name, topic in sorted(cluster.topics.items()):
                if self._pattern.fullmatch(name) and not name.startswith("__") and topic.error is None:
                    found[name] = sorted(topic.partitions)
        return found

    def first(self, places: Sequence[tuple[str, int]]) -> Positions:
        """Return the offset of the first message that each partition still has."""
        return self._offsets(places, self._module.admin.OffsetSpec.earliest())

    def ends(self, places: Sequence[tuple[str, int]]) -> Positions:
        """Return the offset after the last message that can be read in each partition."""
        return self._offsets(places, self._module.admin.OffsetSpec.latest())

    def at_time(self, places: Sequence[tuple[str, int]], time_ms: int) -> Positions:
        """Return the offset of the first message from a time on; the end of a partition that has none."""
        found = self._offsets(places, self._module.admin.OffsetSpec.for_timestamp(time_ms))
        late = [place for place, offset in found.items() if offset < 0]
        return found | self.ends(late)

    def _offsets(self, places: Sequence[tuple[str, int]], spec: Any) -> Positions:
        if not places:
            return {}
        module = self._module
        level = module.IsolationLevel.READ_COMMITTED if self._committed else module.IsolationLevel.READ_UNCOMMITTED
        wanted = {module.TopicPartition(topic, partition): spec for topic, partition in places}

        def ask(wait_s: float) -> Positions:
            answers = self.client.raw.list_offsets(wanted, isolation_level=level, request_timeout=max(wait_s, 1.0))
            return {(one.topic, one.partition): answer.result().offset for one, answer in answers.items()}

        return self._ask("the offsets of the partitions cannot be listed", ask, None)  # type: ignore[no-any-return]

    def _ask(self, what: str, call: Callable[[float], Any], timeout_s: float | None) -> Any:
        """Call until brokers answer, or until the time limit, or until it is clear that they never will."""
        until = time.monotonic() + (self._connection.timeout_seconds if timeout_s is None else timeout_s)
        while True:
            wait_s = max(0.05, min(STEP_S, until - time.monotonic()))
            try:
                return call(wait_s)
            except self._module.KafkaException as error:
                self.client.raw.poll(0)  # calls back with errors of connections
                cause = error.args[0]
                passing = cause.retriable() or cause.name() in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN")
                if not passing or self.client.log.fatal() is not None or time.monotonic() >= until:
                    raise self.client.error(what, cause) from None

    def close(self) -> None:
        """Drop the client; the next question opens another."""
        self._admin = None


def check_pattern(owner: str, pattern: str) -> None:
    """Raise unless a pattern is a regular expression."""
    try:
        re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"{owner}: topic_pattern = {pattern!r} is not a regular expression: {error}") from None


def within(places: Mapping[str, Sequence[int]]) -> list[tuple[str, int]]:
    """Return the partitions of all topics."""
    return [(topic, partition) for topic, partitions in places.items() for partition in partitions]

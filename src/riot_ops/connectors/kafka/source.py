"""A replayable source of Kafka messages."""

from __future__ import annotations

import copy
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import pyarrow as pa

from riot_ops.connectors.kafka.connection import Client, KafkaConnection, confluent_kafka
from riot_ops.connectors.kafka.consumer import Follower, RangeReaders
from riot_ops.connectors.kafka.messages import MESSAGES, SCHEMA_ID, Chunk, to_batch
from riot_ops.connectors.kafka.offsets import (
    SLOTS,
    Part,
    Positions,
    Slots,
    counted,
    cut,
    parts,
    positions,
    proportional,
    to_offset,
)
from riot_ops.connectors.kafka.planner import Planner, check_pattern, within
from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConfigError, ConnectorError, value_text
from riot_ops.core.parameters import OWN_CHECK, Duration, Names, as_names, as_timedelta, parameters_to_json
from riot_ops.core.secret import Secret
from riot_ops.core.source import Offset, Source, Split

__all__ = ["KafkaSource"]

_LOG = logging.getLogger(__name__)

Where = str | datetime | Mapping[str, Mapping[Any, int]]
QueueBytes = Annotated[int, msgspec.Meta(ge=1 << 20, le=2 << 30)]


@dataclass(frozen=True, kw_only=True)
class KafkaSource(KafkaConnection, Source):
    """Read messages of Kafka topics.

    The offsets of partitions are the position of this source, in the checkpoint of the run. It joins no consumer group
    and commits nothing on its own. A range of offsets has the same messages at each read, also where a topic is
    compacted or transactions were aborted. Partitions, and topics of a ``topic_pattern``, that come later are read
    from their beginning on.

    Within a batch records are ordered by ``seq``, which is the offset times 65,536 plus the place of the partition: a
    record has the same number in each run. Records of one partition keep their order; those of different
    partitions have the order of their offsets.

    Parameters
    ----------
    topics : tuple of str, default ()
        Topics, which must exist.
    topic_pattern : str or None
        Regular expression of the whole names of topics, instead of ``topics``.
    starting_offsets : "earliest", "latest", a time or mapping, default "earliest"
        Where a run without a checkpoint begins: at the first or after the last message; at the first message from a
        time on (a ``datetime`` with a zone, or ISO 8601); or at ``{topic: {partition: offset}}``, with partitions that
        it omits from their beginning.
    ending_offsets : "latest" or None, default None
        End after the messages that a topic has when the run begins. By default the source never ends.
    on_missing_offset : "error", "earliest" or "latest", default "error"
        What to do if the next messages are gone, since the topic keeps them no longer: stop the run, go on with the
        first message that is there, or with those that come from now on.
    isolation_level : "read_committed" or "read_uncommitted", default "read_committed"
        Whether to leave out messages of transactions that are open or were aborted.
    wire_format : "plain" or "schema_registry", default "plain"
        With the latter, payloads begin with a byte 0 and the number of their schema in a registry: the number goes to
        the column ``schema_id``, and the payload is the rest. A payload without them is rejected (``malformed``).
    group_id : str or None, default None
        Consumer group at which to report the offsets of each commit, for tools that show a lag. The source never reads
        them.
    discovery_interval : timedelta or text such as "10s", default 30 seconds
        How often to look for new partitions and topics.
    max_queued_bytes : int, 1 MiB to 2 GiB, default 64 MiB
        Messages that wait in the client for the run; fetching then pauses.
    idle : timedelta or text such as "10s", or None, default None
        End when no message has arrived for this long.
    servers, security_protocol, sasl_mechanism, username, password, ca_file, certificate, private_key
        As for :class:`~riot_ops.connectors.kafka.connection.KafkaConnection`.
    client_id, timeout, client_options
        As for :class:`~riot_ops.connectors.kafka.connection.KafkaConnection`.

    Shapes and rates
    ----------------
    ``seq``, ``event_time`` (when the message was created, or appended to the log), ``payload`` (binary, null for a
    tombstone), ``key`` (binary), ``topic``, ``partition``, ``offset``, ``timestamp_type`` (``create`` or
    ``log_append``) and ``headers`` (list of ``key`` and ``value``); one record per message. Only the fields that the
    dataflow declares are made.

    Errors
    ------
    A broker that cannot be reached for ``timeout``, a refused login, an untrusted certificate, a missing topic and
    missing offsets raise :class:`ConnectorError`.

    Examples
    --------
    >>> source = KafkaSource(servers="localhost:9092", topics="readings", starting_offsets="2026-01-31T12:00:00Z")
    >>> source.schema.names[:4]
    ['seq', 'event_time', 'payload', 'key']
    >>> KafkaSource(servers="localhost:9092", topics="readings", client_options={"group.id": "mine"})
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: KafkaSource: client_options must not hold 'group.id', which group_id makes
    """

    topics: Names = ()
    topic_pattern: str | None = None
    starting_offsets: Annotated[Where, OWN_CHECK] = "earliest"
    ending_offsets: Literal["latest"] | None = None
    on_missing_offset: Literal["error", "earliest", "latest"] = "error"
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed"
    wire_format: Literal["plain", "schema_registry"] = "plain"
    group_id: str | None = None
    discovery_interval: Duration = timedelta(seconds=30)
    max_queued_bytes: QueueBytes = 64 << 20
    idle: Duration | None = None

    latest_blocks: ClassVar[bool] = True  # type: ignore[misc]
    own_options: ClassVar[Mapping[str, str]] = {
        "group.id": "group_id",
        "enable.auto.commit": "the checkpoint",
        "auto.commit.enable": "the checkpoint",
        "enable.auto.offset.store": "the checkpoint",
        "auto.offset.reset": "on_missing_offset",
        "isolation.level": "isolation_level",
        "enable.partition.eof": "the source",
        "queued.max.messages.kbytes": "max_queued_bytes",
        "group.instance.id": "the source",
        "group.protocol": "the source",
        "partition.assignment.strategy": "the source",
        "on_commit": "the source",
    }

    def validate(self) -> None:
        super().validate()
        if bool(self.topics) == (self.topic_pattern is not None):
            raise ConfigError("KafkaSource needs either topics, or topic_pattern")
        names = as_names(self.topics)
        if len(set(names)) < len(names) or not all(names):
            raise ConfigError(f"KafkaSource: topics must be different names, got {names!r}")
        if self.topic_pattern is not None:
            check_pattern("KafkaSource", self.topic_pattern)
        object.__setattr__(self, "starting_offsets", _checked_start(self.starting_offsets, names))
        if self.group_id == "":
            raise ConfigError("KafkaSource: group_id must not be empty")
        duration_seconds("discovery_interval", self.discovery_interval)
        if self.idle is not None:
            duration_seconds("idle", self.idle)

    def _try_client(self, module: Any, settings: Mapping[str, Any]) -> None:
        module.Consumer({"group.id": "riot_ops", **settings}).close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_running"}

    def description(self) -> dict[str, Any] | None:
        """Describe topics and position; None if a secret is a literal value."""
        if self.literal_secrets():
            return None
        plain = copy.copy(self)
        options = {k: {"env": v.variable} if isinstance(v, Secret) else v for k, v in self.client_options.items()}
        object.__setattr__(plain, "client_options", options)
        return {"source": self.name(), **parameters_to_json(plain, self.name())}

    # -- clients -----------------------------------------------------------------------------------

    @property
    def _run(self) -> _Running:
        """The clients of this process."""
        found = self.__dict__.get("_running")
        if found is None:
            found = _Running(self)
            object.__setattr__(self, "_running", found)
        return found

    def consumer(self) -> Client:
        """Create a consumer; it reads only what it is assigned."""
        module = confluent_kafka()
        return self.client(
            module.Consumer,
            {
                "group.id": self.group_id or "riot_ops",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "isolation.level": self.isolation_level,
                "queued.max.messages.kbytes": self.max_queued_bytes // 1024,
                # a full queue looks for room again after this time, by default a second
                **({} if "fetch.queue.backoff.ms" in self.client_options else {"fetch.queue.backoff.ms": 10}),
            },
        )

    def close(self) -> None:
        running = self.__dict__.get("_running")
        if running is not None:
            object.__setattr__(self, "_running", None)
            running.close()

    # -- source ------------------------------------------------------------------------------------

    @property
    def schema(self) -> pa.Schema:
        found = MESSAGES
        if self.wire_format == "schema_registry":
            found = found.insert(3, SCHEMA_ID)
        wanted = self.__dict__.get("_columns")
        return found if wanted is None else pa.schema([field for field in found if field.name in wanted])

    def project(self, schema: pa.Schema) -> Source:
        projected = copy.copy(self)
        object.__setattr__(projected, "_running", None)
        object.__setattr__(projected, "_columns", frozenset({"seq", "event_time", *schema.names}))
        return projected

    def initial(self) -> Offset:
        planner = self._run.planner
        found = planner.partitions()
        places = within(found)
        start = self.starting_offsets
        if start == "latest":
            at = planner.ends(places)
        elif isinstance(start, datetime):
            at = planner.at_time(places, int(start.timestamp() * 1000))
        else:
            at = planner.first(places)
            if isinstance(start, Mapping):
                given = {(t, int(p)): n for t, many in start.items() for p, n in many.items()}
                if unknown := sorted(set(given) - set(places)):
                    raise ConnectorError(
                        f"Kafka at {self.address}: starting_offsets names partition {unknown[0][1]} of the topic "
                        f"{unknown[0][0]!r}, which does not exist"
                    )
                at |= given
        return to_offset(at, {}, [] if self.topic_pattern is None else list(found))

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        return self._run.latest(start, limit)

    def finished(self, offset: Offset) -> bool:
        return self._run.finished(offset)

    def waits(self) -> bool:
        return self.ending_offsets is None

    def splits(self, start: Offset, end: Offset, n: int) -> list[Split]:
        topics = self._order(end)
        return [split | ({"topics": topics} if self.topic_pattern else {}) for split in cut(parts(start, end), n)]

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        topics = split.get("topics") or list(as_names(self.topics))
        slots, message = Slots(topics, pattern=self.topic_pattern is not None), confluent_kafka().Message
        for one in self._run.read([Part(*part) for part in split["parts"]], topics):
            if one.messages:
                yield to_batch(one, self.schema, slots, message, framed=self.wire_format == "schema_registry")

    def count(self, start: Offset, end: Offset) -> int | None:
        return counted(start, end)

    def seq_at(self, offset: Offset) -> int:
        return min(positions(offset).values(), default=0) * SLOTS

    def commit(self, end: Offset) -> None:
        if self.group_id is not None:
            self._run.report(end)

    def _order(self, offset: Offset) -> list[str]:
        """Return the topics in the order of their numbers."""
        return list(as_names(self.topics)) if self.topic_pattern is None else list(offset.get("", {}).get("order", ()))


class _Running:
    """The clients of a source in one process, and what it has seen of the topics."""

    def __init__(self, source: KafkaSource) -> None:
        self._source = source
        self._timeout_s = source.timeout_seconds
        self.planner = Planner(
            source, as_names(source.topics), source.topic_pattern, committed=source.isolation_level == "read_committed"
        )
        self._readers = RangeReaders(source.consumer, self._timeout_s, self._missing)
        self._follower: Follower | None = None
        self._offered: list[Part] | None = None  # by the follower, and not yet read
        self._offered_end: Positions = {}
        self._is_planner = False  # whether ranges are read by other processes
        self._discovered = -1.0
        self._known: dict[str, list[int]] = {}
        self._until: Positions | None = None  # where the source ends
        self._reporter: Client | None = None
        self._heard = time.monotonic()
        self._down_since: float | None = None

    # -- planning ----------------------------------------------------------------------------------

    def latest(self, start: Offset, limit: int | None) -> Offset:
        at = positions(start)
        new = self._discover(at)
        if self._source.ending_offsets is not None and self._until is None:
            self._until = self.planner.ends(within(self._known))
        if self._offered and at == self._offered_end:  # another process reads
            self._is_planner = True
            self._stop_following()
        if limit is None or self._is_planner:
            return self._planned(start, at, new, limit)
        return self._followed(start, at, new, limit)

    def finished(self, offset: Offset) -> bool:
        at = positions(offset)
        if self._until is not None and all(at.get(place, 0) >= end for place, end in self._until.items()):
            return True
        idle = as_timedelta(self._source.idle)
        return idle is not None and time.monotonic() - self._heard >= idle.total_seconds()

    def _discover(self, at: Positions) -> Positions:
        """Return the beginnings of partitions that are not part of a position; look for new ones from time to time."""
        now = time.monotonic()
        if self._discovered < 0 or now - self._discovered >= _seconds(self._source.discovery_interval):
            self._known = self.planner.partitions()
            self._discovered = now
            self._first: Positions = {}
        missing = [place for place in within(self._known) if place not in at]
        if unseen := [place for place in missing if place not in self._first]:
            self._first |= self.planner.first(unseen)
        return {place: self._first[place] for place in missing}

    def _planned(self, start: Offset, at: Positions, new: Positions, limit: int | None) -> Offset:
        places = [*at, *new]
        ends, begun = self.planner.ends(places), self.planner.first(list(at))
        first = dict(new)
        for place, offset in at.items():
            if offset < begun[place] or offset > ends[place]:
                first[place] = self._resume(place, offset, begun[place], ends[place])
        from_here = {**at, **first}
        if self._until is not None:
            ends = {p: max(min(n, self._until.get(p, 0)), from_here[p]) for p, n in ends.items()}
        found = proportional(from_here, ends, limit)
        if any(found[place] != n for place, n in from_here.items()):
            self._heard = time.monotonic()
        moved = {p: n for p, n in found.items() if p in at or n > first[p]}
        return self._offset(start, moved, {p: n for p, n in first.items() if p in moved})

    def _offset(self, start: Offset, at: Positions, first: Positions) -> Offset:
        order = start.get("", {}).get("order", [])
        topics = [topic for topic in self._known if topic not in order] if self._source.topic_pattern else []
        found = to_offset(at, first, [*order, *topics])
        return start if found == start or (not first and positions(found) == positions(start)) else found

    def _resume(self, place: tuple[str, int], offset: int, begin: int, end: int) -> int:
        """Return where to read on if an offset is not between the first and the last of a partition."""
        where = f"offset {offset} of the topic {place[0]!r}, partition {place[1]}"
        how = f"it has the offsets from {begin} to {end}"
        on_missing = self._source.on_missing_offset
        if on_missing == "error":
            lost = f"; {begin - offset} messages are lost" if offset < begin else "; was the topic created again?"
            raise ConnectorError(
                f"Kafka at {self._source.address}: the {where} is gone: {how}{lost}; to go on without them, give "
                "on_missing_offset='earliest' or 'latest'"
            )
        found = begin if on_missing == "earliest" else end
        _LOG.warning("Kafka at %s: the %s is gone: %s; reading goes on at %d", self._source.address, where, how, found)
        return found

    # -- following ---------------------------------------------------------------------------------

    def _followed(self, start: Offset, at: Positions, new: Positions, limit: int) -> Offset:
        follower = self._follower
        if follower is None or not follower.is_at(at):
            follower = self._follow(at, self._order(start))
        if fresh := {place: n for place, n in new.items() if place not in follower.partitions}:
            follower.add(self._order(start), fresh)
        if follower.fill(limit):
            self._heard, self._down_since = time.monotonic(), None
        else:
            self._check_connection()
        end = follower.offer(limit)
        self._offered_end = end
        offset = self._offset(start, end, {p: n for p, n in follower.first.items() if p in end})
        self._offered = parts(start, offset)
        return offset

    def _order(self, start: Offset) -> list[str]:
        if self._source.topic_pattern is None:
            return list(as_names(self._source.topics))
        order = start.get("", {}).get("order", [])
        return [*order, *(topic for topic in self._known if topic not in order)]

    def _follow(self, at: Positions, topics: list[str]) -> Follower:
        self._stop_following()
        # brokers may answer an offset that does not exist with silence
        begun, ends = self.planner.first(list(at)), self.planner.ends(list(at))
        begin, first = dict(at), {}
        for place, offset in at.items():
            if offset < begun[place]:
                begin[place] = first[place] = self._resume(place, offset, begun[place], ends[place])
        self._follower = Follower(
            self._source.consumer(), topics, at, start=begin, first=first, until=self._until, missing=self._missing
        )
        return self._follower

    def _stop_following(self) -> None:
        follower, self._follower, self._offered = self._follower, None, None
        if follower is not None:
            follower.close()

    def _check_connection(self) -> None:
        """Raise if the brokers have refused the login, or cannot be reached for long."""
        assert self._follower is not None
        log = self._follower.client.log
        if log.fatal() is not None:
            raise self._follower.client.error("messages cannot be read", log.fatal())
        now = time.monotonic()
        if not log.is_down:
            self._down_since = None
        elif self._down_since is None:
            self._down_since = now
        elif now - self._down_since >= self._timeout_s:
            self.planner.partitions(1.0)  # raises if they cannot be reached
            log.clear()

    def _missing(self, client: Client, topic: str, partition: int, error: Any) -> int:
        """Return where to read on after messages that are gone."""
        place = (topic, partition)
        begin, end = self.planner.first([place])[place], self.planner.ends([place])[place]
        if self._source.on_missing_offset == "error":
            raise client.error(
                f"messages of the topic {topic!r}, partition {partition}, are gone before they were read: it has the "
                f"offsets from {begin} to {end}; to go on without them, give on_missing_offset='earliest' or 'latest'",
                error,
            )
        _LOG.warning("Kafka at %s: messages of %r, partition %d, are gone", self._source.address, topic, partition)
        return begin if self._source.on_missing_offset == "earliest" else end

    # -- reading -----------------------------------------------------------------------------------

    def read(self, ranges: list[Part], topics: list[str]) -> Iterator[Chunk]:
        if self._follower is not None and ranges == self._offered:
            self._offered = None
            yield from self._follower.take()
            return
        yield from self._readers.read(ranges, topics)

    def report(self, end: Offset) -> None:
        """Report offsets to the consumer group; an error is logged, since nothing depends on it."""
        module = confluent_kafka()
        if self._reporter is None:
            self._reporter = self._source.consumer()
        offsets = [module.TopicPartition(t, p, n) for (t, p), n in positions(end).items()]
        try:
            self._reporter.raw.commit(offsets=offsets, asynchronous=True)
            self._reporter.raw.poll(0)
        except module.KafkaException as error:
            _LOG.warning("%s", self._reporter.error(f"the group {self._source.group_id!r} gets no offsets", error))

    def close(self) -> None:
        self._stop_following()
        self._readers.close()
        self.planner.close()
        reporter, self._reporter = self._reporter, None
        if reporter is not None:
            reporter.raw.close()


def _seconds(value: Duration) -> float:
    return as_timedelta(value).total_seconds()


def _checked_start(start: Any, topics: tuple[str, ...]) -> Any:
    """Return where to start: a text, a time with its zone, or offsets."""
    allowed = "'earliest', 'latest', a time with a zone, or {topic: {partition: offset}}"
    if isinstance(start, str) and start not in ("earliest", "latest"):
        try:
            start = datetime.fromisoformat(start)
        except ValueError:
            raise ConfigError(f"KafkaSource: starting_offsets must be {allowed}, got {value_text(start)}") from None
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise ConfigError(
                f"KafkaSource: starting_offsets = {start.isoformat()!r} needs a zone, such as 'Z' or '+02:00'"
            )
        return start.astimezone(UTC)
    if isinstance(start, str):
        return start
    try:
        found = msgspec.convert({t: dict(many) for t, many in start.items()}, dict[str, dict[int, int]], strict=False)
    except (msgspec.ValidationError, AttributeError, TypeError, ValueError):
        raise ConfigError(f"KafkaSource: starting_offsets must be {allowed}, got {value_text(start)}") from None
    if topics and (unknown := sorted(set(found) - set(topics))):
        raise ConfigError(
            f"KafkaSource: starting_offsets names the topic {unknown[0]!r}, which topics lacks: {', '.join(topics)}"
        )
    if any(n < 0 or p < 0 for many in found.values() for p, n in many.items()):
        raise ConfigError("KafkaSource: starting_offsets must have partitions and offsets from 0 on")
    return {topic: {str(p): n for p, n in many.items()} for topic, many in found.items()}

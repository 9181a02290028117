"""Producers of messages to Kafka: idempotent, or within transactions that record the batch which they contain."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from riot_ops.connectors.kafka.connection import Client, KafkaConnection, confluent_kafka
from riot_ops.connectors.retry import shared_client
from riot_ops.core.errors import ConnectorError

__all__ = ["IdempotentProducer", "OutgoingMessage", "Transactions", "open_producer"]

#: Longest wait in the library, in seconds, so that signals are noticed.
STEP_S = 0.5
#: Settings that a user may replace: a wait for fuller batches, and the partition of a key as in Kafka's own client.
DEFAULTS = {"linger.ms": 20, "partitioner": "murmur2_random"}
#: Errors of messages are named up to this number.
MAX_ERRORS = 100


class OutgoingMessage(NamedTuple):
    """A message to produce, in the order of the arguments of ``Producer.produce``."""

    topic: str
    value: bytes | None
    key: bytes | None
    partition: int = -1
    callback: None = None
    on_delivery: None = None
    timestamp: int = 0
    headers: list[tuple[str, bytes | None]] | None = None


class IdempotentProducer:
    """Produces messages; each appears once in its partition, in order, whatever requests are repeated.

    Parameters
    ----------
    connection : KafkaConnection
    settings : mapping of str to object
        Further settings of librdkafka.
    """

    def __init__(self, connection: KafkaConnection, settings: Mapping[str, Any] | None = None) -> None:
        self._connection = connection
        self._settings = settings or {}
        self._module = confluent_kafka()
        self._client: Client | None = None
        self._failed: list[tuple[Any, Any]] = []

    @property
    def client(self) -> Client:
        if self._client is None:
            self._client = self._connection.client(
                self._module.Producer,
                {
                    "enable.idempotence": True,
                    "delivery.timeout.ms": int(self._connection.timeout_seconds * 1000),
                    "delivery.report.only.error": True,  # a call for each message takes longer than the message
                    "on_delivery": self._report,
                    **{key: value for key, value in DEFAULTS.items() if key not in self._connection.client_options},
                    **self._settings,
                },
            )
        return self._client

    def _report(self, error: Any, message: Any) -> None:
        if error is not None and len(self._failed) < MAX_ERRORS:
            self._failed.append((error, message))

    def produce(self, messages: Iterable[OutgoingMessage]) -> None:
        """Hand messages over to the library, and wait while its queue is full; raise for those that it refuses."""
        produce, poll = self.client.raw.produce, self.client.raw.poll
        for message in messages:
            while True:
                try:
                    produce(*message)
                    break
                except BufferError:  # the brokers are slower: the caller waits
                    poll(STEP_S)
                    self._check()
                except self._module.KafkaException as error:
                    raise self._refused(error.args[0], message.topic) from None
        poll(0)
        self._check()

    def flush(self) -> None:
        """Return when the brokers have acknowledged all messages; raise if they do not, or refuse one."""
        until = time.monotonic() + self._connection.timeout_seconds + 5 * STEP_S  # the library gives messages up before
        while self.client.raw.flush(STEP_S):
            self._check()
            if time.monotonic() > until:
                raise self.client.error(
                    f"{len(self.client.raw)} messages are not acknowledged",
                    self._module.KafkaError(self._module.KafkaError._MSG_TIMED_OUT),  # noqa: SLF001 (their name)
                )
        self._check()

    def _check(self) -> None:
        if self._client is not None and self._client.log.fatal() is not None:
            raise self._client.error("messages cannot be written", self._client.log.fatal())
        if self._failed:
            error, message = self._failed[0]
            raise self._refused(error, message.topic())

    def _refused(self, error: Any, topic: str) -> ConnectorError:
        return self.client.error(f"a message of the topic {topic!r} cannot be written", error)

    def drop(self) -> None:
        """Give up messages that are not sent yet, and the client, which may be of no more use."""
        client, self._client, self._failed = self._client, None, []
        if client is not None:
            client.raw.purge()
            client.raw.poll(0)

    def close(self) -> None:
        """Give up the client; the next use opens another."""
        self.drop()


class Transactions:
    """Produces the messages of each batch in one transaction, which also records the number of the batch.

    The record is an offset of a consumer group with the name of the transactions: the number of the next batch. It is
    committed together with the messages, so :meth:`last_committed` says for certain whether a batch is in the topics.

    Parameters
    ----------
    connection : KafkaConnection
    name : str
        The transactional id, that of one run: a producer with the same one ends the transactions of an earlier one.
    topic : str
        Topic of the record.
    """

    def __init__(self, connection: KafkaConnection, name: str, topic: str) -> None:
        self._connection = connection
        self._name = name
        self._topic = topic
        self._module = confluent_kafka()
        self._producer = IdempotentProducer(connection, {"transactional.id": name})
        self._group: Client | None = None
        self._last: int | None = None
        self._is_open = self._is_ready = False

    def _make_ready(self) -> None:
        """Abort what an earlier process has left open, and read which batch was committed last."""
        if self._is_ready:
            return
        raw = self._producer.client.raw
        self._call("the transactions cannot begin", raw.init_transactions)
        if self._group is None:
            self._group = self._connection.client(
                self._module.Consumer,
                {"group.id": self._name, "enable.auto.commit": False, "isolation.level": "read_committed"},
            )
        place = self._module.TopicPartition(self._topic, 0)
        group = self._group.raw
        (found,) = self._call(
            "the last transaction cannot be found", lambda timeout_s: group.committed([place], timeout=timeout_s)
        )
        if found.error is not None:
            raise self._group.error("the last transaction cannot be found", found.error)
        self._last = found.offset - 1 if found.offset > 0 else None
        self._is_ready = True

    def last_committed(self) -> int | None:
        """Return the number of the last batch of this run whose messages are in the topics; None if there is none."""
        self._make_ready()
        return self._last

    def produce(self, messages: Iterable[OutgoingMessage]) -> None:
        """Produce messages within the transaction, which begins if there is none."""
        self._begin()
        self._producer.produce(messages)

    def _begin(self) -> None:
        self._make_ready()
        if not self._is_open:
            try:
                self._producer.client.raw.begin_transaction()
            except self._module.KafkaException as error:
                raise self._producer.client.error("a transaction cannot begin", error) from None
            self._is_open = True

    def flush(self) -> None:
        """Return when the brokers have acknowledged all messages of the transaction."""
        self._begin()
        self._producer.flush()

    def commit(self, batch_id: int) -> None:
        """Make the messages of a batch visible, and record its number."""
        self._begin()
        raw = self._producer.client.raw
        assert self._group is not None
        place = self._module.TopicPartition(self._topic, 0, batch_id + 1)
        members = self._group.raw.consumer_group_metadata()
        self._call(
            "a transaction cannot record its batch",
            lambda timeout_s: raw.send_offsets_to_transaction([place], members, timeout_s),
        )
        self._call("a transaction cannot be committed", raw.commit_transaction)
        self._is_open, self._last = False, batch_id

    def abort(self) -> None:
        """Drop the messages of the open transaction; the next one begins with a client of its own."""
        was_open, self._is_open, self._is_ready = self._is_open, False, False
        if was_open and self._producer.client.log.fatal() is None:
            with contextlib.suppress(self._module.KafkaException):  # else the next client aborts it
                self._producer.client.raw.abort_transaction(STEP_S)
        self._producer.drop()

    def _call(self, what: str, call: Any) -> Any:
        """Call a function with a time limit, again while the error is passing."""
        until = time.monotonic() + self._connection.timeout_seconds
        client = self._producer.client
        while True:
            try:
                return call(max(STEP_S, min(5 * STEP_S, until - time.monotonic())))
            except self._module.KafkaException as error:
                client.raw.poll(0)
                cause = error.args[0]
                passing = cause.retriable() or cause.name() in ("_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN")
                if not passing or client.log.fatal() is not None or time.monotonic() >= until:
                    raise client.error(what, cause) from None

    def close(self) -> None:
        """Abort what is open, and close the clients."""
        self.abort()
        group, self._group = self._group, None
        if group is not None:
            group.raw.close()


class _Key:
    """A connection as an argument of :func:`shared_client`: equal if the settings are."""

    def __init__(self, connection: KafkaConnection) -> None:
        self.connection = connection
        self._key = connection.key()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)


def open_producer(connection: KafkaConnection) -> IdempotentProducer:
    """Return the producer of this process for a connection; it is closed at exit."""
    return shared_client(_shared, _Key(connection))


def _shared(key: _Key) -> IdempotentProducer:
    return IdempotentProducer(key.connection)

"""Producers of messages to Kafka: idempotent, or within transactions that record the batch which they contain."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
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
#: Shortest time after which the broker aborts a transaction, in seconds: epochs may be long, and brokers slow.
MIN_TRANSACTION_S = 300.0
#: Bytes of records up to which an open transaction can be repeated.
MAX_HELD_BYTES = 64 << 20
#: Errors that pass while another broker takes over from one that is lost.
PASSING = {"_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_WAIT_COORD", "COORDINATOR_LOAD_IN_PROGRESS",
           "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "REQUEST_TIMED_OUT", "UNSTABLE_OFFSET_COMMIT"}  # fmt: skip
#: Errors of messages that say that their transaction was aborted.
ABORTED = {"INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING", "INVALID_TXN_STATE", "OUT_OF_ORDER_SEQUENCE_NUMBER",
           "UNKNOWN_PRODUCER_ID", "_PURGE_INFLIGHT", "_PURGE_QUEUE"}  # fmt: skip

_LOG = logging.getLogger(__name__)

#: Returns messages, the same at each call.
Messages = Callable[[], Iterable["OutgoingMessage"]]


class AbortedError(ConnectorError):
    """The transaction cannot be committed; a new one with the same messages can."""


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
        found = self.client.error(f"a message of the topic {topic!r} cannot be written", error)
        return AbortedError(str(found)) if "transactional.id" in self._settings and is_aborted(error) else found

    def drop(self) -> None:
        """Give up messages that are not sent yet, and the client, which may be of no more use."""
        client, self._client, self._failed = self._client, None, []
        if client is not None:
            client.raw.purge()
            client.raw.poll(0)

    def close(self) -> None:
        """Give up the client; the next use opens another."""
        self.drop()


def is_aborted(error: Any) -> bool:
    """Whether a ``KafkaError`` leaves nothing but to abort the transaction, which can then be repeated."""
    return not error.fatal() and (error.txn_requires_abort() or error.name() in ABORTED)


class Transactions:
    """Produces the messages of each batch in one transaction, which also records the number of the batch.

    The record is an offset of a consumer group with the name of the transactions: the number of the next batch. It is
    committed together with the messages, so :meth:`last_committed` says for certain whether a batch is in the topics.

    Where brokers are lost, a transaction may have to be aborted. A new client then repeats it, within the time limit of
    the connection, unless the record says that it was committed after all. Records of more than ``MAX_HELD_BYTES`` are
    not held, and the error is raised.

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
        limit_ms = int(1000 * max(MIN_TRANSACTION_S, connection.timeout_seconds))
        defaults = {"transaction.timeout.ms": limit_ms, "transactional.id": name}
        self._producer = IdempotentProducer(
            connection, {key: value for key, value in defaults.items() if key not in connection.client_options}
        )
        self._group: Client | None = None
        self._last: int | None = None
        self._is_open = self._is_ready = False
        self._unsent: list[Messages] = []  # not handed over to the library yet
        self._held: list[Messages] = []  # of the open transaction, all
        self._held_bytes = 0

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
        group, what = self._group, "the last transaction cannot be found"

        def committed(timeout_s: float) -> Any:
            (found,) = group.raw.committed([self._module.TopicPartition(self._topic, 0)], timeout=timeout_s)
            if found.error is not None:
                raise self._module.KafkaException(found.error)
            return found.offset

        offset = self._call(what, committed, group)
        self._last = offset - 1 if offset > 0 else None
        self._is_ready = True

    def last_committed(self) -> int | None:
        """Return the number of the last batch of this run whose messages are in the topics; None if there is none."""
        self._make_ready()
        return self._last

    def produce(self, messages: Messages, size: int = 0) -> None:
        """Produce messages in the transaction, which begins if there is none; ``size``: the bytes that they hold."""
        self._held_bytes += size
        self._held = [*self._held, messages] if self._is_repeatable else []
        self._unsent.append(messages)
        self._repeat(self._send)

    @property
    def _is_repeatable(self) -> bool:
        return self._held_bytes <= MAX_HELD_BYTES

    def _send(self) -> None:
        self._begin()
        for messages in self._unsent:
            self._producer.produce(messages())
        self._unsent = []

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
        self._repeat(self._flush)

    def _flush(self) -> None:
        self._send()
        self._producer.flush()

    def commit(self, batch_id: int) -> None:
        """Make the messages of a batch visible, and record its number."""
        self._repeat(lambda: self._commit(batch_id))
        self._is_open, self._last = False, batch_id
        self._forget()

    def _commit(self, batch_id: int) -> None:
        self._make_ready()
        if self._last == batch_id:  # it was committed, although the client was told otherwise
            return
        self._send()
        self._call("a transaction cannot record its batch", lambda _: self._record(batch_id))
        self._call("a transaction cannot be committed", self._producer.client.raw.commit_transaction)

    def _record(self, batch_id: int) -> None:
        """Add the number of a batch to the transaction.

        librdkafka 2.16 may ignore the time limit of this call and wait for a coordinator that is lost (its issues 5456
        and 5511), so a thread calls it; the client is given up with the thread.
        """
        assert self._group is not None
        raw = self._producer.client.raw
        place = self._module.TopicPartition(self._topic, 0, batch_id + 1)
        members = self._group.raw.consumer_group_metadata()
        limit_s = max(5 * STEP_S, self._connection.timeout_seconds / 4)
        failed: list[Exception] = []

        def call() -> None:
            try:
                raw.send_offsets_to_transaction([place], members, limit_s)
            except self._module.KafkaException as error:
                failed.append(error)

        thread = threading.Thread(target=call, name="kafka-offsets", daemon=True)
        thread.start()
        until = time.monotonic() + limit_s + STEP_S
        while thread.is_alive():
            thread.join(STEP_S)
            if time.monotonic() > until:
                code = self._module.KafkaError._TIMED_OUT  # noqa: SLF001 (their name)
                why = f"the coordinator of the group does not answer within {limit_s:g} s"
                raise self._module.KafkaException(self._module.KafkaError(code, why, False, False, True))
        if failed:
            raise failed[0]

    def _repeat(self, action: Callable[[], None]) -> None:
        """Do something within the transaction; where that was aborted, again in a new one with the same messages."""
        until: float | None = None
        while True:
            try:
                return action()
            except AbortedError as error:
                now = time.monotonic()
                until = now + self._connection.timeout_seconds if until is None else until
                if not self._is_repeatable or now >= until:
                    raise ConnectorError(str(error), retryable=True) from None
                _LOG.warning("%s; the transaction is repeated", error)
                self._end()
                self._unsent = list(self._held)
                time.sleep(STEP_S)

    def abort(self) -> None:
        """Drop the messages of the open transaction; the next one begins with a client of its own."""
        self._end()
        self._forget()

    def _forget(self) -> None:
        self._unsent, self._held, self._held_bytes = [], [], 0

    def _end(self) -> None:
        was_open, self._is_open, self._is_ready = self._is_open, False, False
        if was_open and self._producer.client.log.fatal() is None:
            with contextlib.suppress(self._module.KafkaException):  # else the next client aborts it
                self._producer.client.raw.abort_transaction(STEP_S)
        self._producer.drop()

    def _call(self, what: str, call: Callable[[float], Any], client: Client | None = None) -> Any:
        """Call a function with a time limit, again while the error is passing."""
        until = time.monotonic() + self._connection.timeout_seconds
        client = self._producer.client if client is None else client
        while True:
            try:
                return call(max(STEP_S, min(5 * STEP_S, until - time.monotonic())))
            except self._module.KafkaException as error:
                self._producer.client.raw.poll(0)
                cause = error.args[0]
                passing = (cause.retriable() or cause.name() in PASSING) and not cause.txn_requires_abort()
                if passing and client.log.fatal() is None and time.monotonic() < until:
                    continue
                found = client.error(what, cause)
                raise (AbortedError(str(found)) if is_aborted(cause) else found) from None

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

"""Transactions over brokers that fail: each batch is committed once, or an error says that it is not."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.connectors import KafkaSink
from riot_ops.connectors.kafka import producer as module
from riot_ops.connectors.kafka.connection import Client, ErrorLog
from riot_ops.connectors.kafka.producer import OutgoingMessage, Transactions

#: What brokers answer: code, and whether the call may be repeated, or the transaction must be aborted.
PASSING = (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, False, True, False)
ABORTABLE = (KafkaError.COORDINATOR_NOT_AVAILABLE, False, False, True)
HANGS = "the call does not return"
FENCED = (KafkaError._FENCED, True, False, False)
CALLS = ("init_transactions", "committed", "produce", "flush", "send_offsets_to_transaction", "commit_transaction")


class Brokers:
    """The log of a cluster, and the faults to come: per call, the answers of its next calls."""

    def __init__(self, faults=()):
        self.messages, self.committed_offset = [], -1001
        self.faults = {name: [] for name in CALLS}
        for name, answer in faults:
            self.faults[name].append(answer)
        self.clients = 0
        self.released = threading.Event()

    def answer(self, name):
        if self.faults[name] and (found := self.faults[name].pop(0)) is not None:
            if found is HANGS:
                self.released.wait(60)
                return None
            code, fatal, retriable, aborts = found[:4]
            if found[4:]:  # the request arrived, its answer did not
                return found
            raise KafkaException(KafkaError(code, None, fatal, retriable, aborts))
        return None


class FakeProducer:
    def __init__(self, brokers):
        self.brokers, self.open, self.offset = brokers, None, None
        brokers.clients += 1

    def init_transactions(self, timeout):
        self.brokers.answer("init_transactions")

    def begin_transaction(self):
        assert self.open is None
        self.open = []

    def produce(self, topic, value, *_):
        self.brokers.answer("produce")
        self.open.append(value)

    def flush(self, timeout):
        self.brokers.answer("flush")
        return 0

    def send_offsets_to_transaction(self, places, members, timeout):
        self.brokers.answer("send_offsets_to_transaction")
        self.offset = places[0].offset

    def commit_transaction(self, timeout):
        late = self.brokers.answer("commit_transaction")
        self.brokers.messages += self.open
        self.brokers.committed_offset, self.open = self.offset, None
        if late is not None:
            raise KafkaException(KafkaError(late[0], None, *late[1:4]))

    def abort_transaction(self, timeout):
        self.open = None

    def poll(self, timeout):
        return 0

    def purge(self):
        pass


class FakeGroup:
    def __init__(self, brokers):
        self.brokers = brokers

    def committed(self, places, timeout):
        self.brokers.answer("committed")
        return [SimpleNamespace(error=None, offset=self.brokers.committed_offset)]

    def consumer_group_metadata(self):
        return None

    def close(self):
        pass


def connected(brokers, **options):
    sink = KafkaSink(servers="localhost:1", topic="t", payload="p", timeout="2s", **options)

    def client(make, settings=None):
        raw = FakeProducer(brokers) if make is Producer else FakeGroup(brokers)
        return Client(raw, ErrorLog(), sink)

    object.__setattr__(sink, "client", client)
    return Transactions(sink, "run", "t")


def write(transactions, batches, rows=3):
    for batch in range(batches):
        for row in range(rows):
            message = OutgoingMessage("t", b"%d" % (batch * rows + row), None)
            transactions.produce(lambda message=message: [message], 10)
        transactions.flush()
        transactions.commit(batch)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr(module, "STEP_S", 0.001)


answers = st.sampled_from([None, PASSING, ABORTABLE])
late = st.sampled_from([(*ABORTABLE, "late"), (KafkaError._TIMED_OUT, False, False, True, "late")])


@given(
    st.lists(
        st.tuples(st.sampled_from(["init_transactions", "committed"]), st.sampled_from([None, PASSING]))
        | st.tuples(st.sampled_from(["send_offsets_to_transaction"]), answers)
        | st.tuples(st.just("commit_transaction"), answers | late),
        max_size=12,
    )
)
def test_each_batch_is_committed_once_whatever_passes(faults):
    brokers = Brokers(faults)
    write(connected(brokers), 3)
    assert brokers.messages == [b"%d" % i for i in range(9)] and brokers.committed_offset == 3


def test_call_that_ignores_its_time_limit_is_given_up():
    """As in librdkafka 2.16, if the coordinator of the group is lost."""
    brokers = Brokers([("send_offsets_to_transaction", HANGS)])
    write(connected(brokers), 2)
    brokers.released.set()
    assert brokers.messages == [b"%d" % i for i in range(6)] and brokers.clients == 2


@pytest.mark.parametrize("call", ["send_offsets_to_transaction", "commit_transaction"])
def test_fenced_run_ends(call):
    """Another run has taken over: this one must not fight it."""
    brokers = Brokers([(call, FENCED)])
    with pytest.raises(ro.ConnectorError, match="another run writes with this transactional_id"):
        write(connected(brokers), 1)
    assert brokers.messages == [] and brokers.clients == 1


def test_abortable_error_that_lasts_is_raised():
    brokers = Brokers([("send_offsets_to_transaction", ABORTABLE)] * 100_000)
    transactions = connected(brokers)
    object.__setattr__(transactions._connection, "timeout", "0.2s")
    with pytest.raises(ro.ConnectorError, match="a transaction cannot record its batch") as raised:
        write(transactions, 1)
    assert raised.value.retryable and type(raised.value) is ro.ConnectorError and brokers.messages == []


def test_large_transaction_is_not_held(monkeypatch):
    """It is bounded in memory, and its failure is that of the run, which continues from its checkpoint."""
    monkeypatch.setattr(module, "MAX_HELD_BYTES", 25)
    brokers = Brokers([("commit_transaction", ABORTABLE)])
    transactions = connected(brokers)
    with pytest.raises(ro.ConnectorError) as raised:
        write(transactions, 1)
    assert raised.value.retryable and brokers.messages == []
    transactions.abort()
    write(transactions, 1, rows=2)  # a smaller one is held again
    assert brokers.messages == [b"0", b"1"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, 300_000),
        ({"timeout": "8min"}, 480_000),
        ({"client_options": {"transaction.timeout.ms": 90_000}}, 90_000),
    ],
)
def test_time_limit_of_transactions(options, expected):
    """librdkafka refuses one that is shorter than that of messages."""
    sink = KafkaSink(servers="localhost:1", topic="t", payload="p", **options)
    given_settings = []

    def client(make, settings=None):
        given_settings.append({**sink.settings(), **settings})
        return KafkaSink.client(sink, make, settings)

    object.__setattr__(sink, "client", client)
    transactions = Transactions(sink, "run", "t")
    assert transactions._producer.client is not None
    assert given_settings[0]["transaction.timeout.ms"] == expected

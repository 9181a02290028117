"""Retries, parallel calls, and one client per process."""

from __future__ import annotations

import os
import threading
import time

import pytest

from riot_ops import ConnectorError, RecordError, Secret
from riot_ops.connectors.retry import Failure, close_shared_clients, map_parallel, retry, shared_client


class Clock:
    """A clock that advances only in ``sleep``."""

    def __init__(self):
        self.now = 0.0
        self.pauses = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.pauses.append(seconds)
        self.now += seconds


def _explain(error):
    return None if isinstance(error, RecordError) else Failure("it rained", isinstance(error, TimeoutError))


def _failing(times, error=TimeoutError):
    left = [times]

    def call():
        left[0] -= 1
        if left[0] >= 0:
            raise error("sig=hush")
        return "done"

    return call


def _try(call, patience_s=60.0):
    clock = Clock()
    try:
        return retry("the bus cannot be caught", call, _explain, patience_s, clock=clock, sleep=clock.sleep), clock
    except ConnectorError as error:
        return error, clock


def test_pauses_double_up_to_five_seconds_with_jitter():
    found, clock = _try(_failing(9))
    assert found == "done"
    wanted = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
    assert all(w / 2 <= pause <= w for pause, w in zip(clock.pauses, wanted, strict=True))


def test_retries_end_within_the_patience():
    error, clock = _try(_failing(1000), patience_s=20.0)
    assert str(error) == f"the bus cannot be caught after {len(clock.pauses) + 1} tries: it rained"
    assert error.retryable and 15 <= clock.now <= 20


def test_zero_patience_is_one_attempt():
    error, clock = _try(_failing(1), patience_s=0)
    assert str(error) == "the bus cannot be caught: it rained" and clock.pauses == []


def test_permanent_failure_is_not_retried():
    error, clock = _try(_failing(1, PermissionError))
    assert not error.retryable and clock.pauses == []


def test_error_does_not_chain_the_original_exception():
    error, _ = _try(_failing(1, PermissionError))
    assert error.__cause__ is None and error.__context__ is None


def test_unexplained_exception_propagates():
    with pytest.raises(RecordError):
        _try(_failing(1, RecordError))


def test_parallel_calls_run_concurrently_and_keep_their_order():
    barrier = threading.Barrier(4, timeout=10)

    def call(i):
        barrier.wait()
        return -i

    assert map_parallel(call, list(range(8)), workers=4) == [-i for i in range(8)]
    assert map_parallel(lambda i: i, [], workers=4) == []


def test_other_calls_give_up_after_a_failure():
    def call(i):
        if i == 0:
            time.sleep(0.2)
            raise ValueError("first")
        return retry("it", _failing(10**6), _explain, 60.0)

    started = time.monotonic()
    with pytest.raises(ValueError, match="first"):
        map_parallel(call, [0, 1, 2, 3], workers=2)
    assert time.monotonic() - started < 10


class Client:
    """A client that counts its instances."""

    opened = 0

    def __init__(self, *arguments, **options):
        type(self).opened += 1
        self.closed = 0

    def close(self):
        self.closed += 1


def test_one_client_per_process_and_arguments(monkeypatch):
    monkeypatch.setenv("SHARED_TEST", "one")
    secret = Secret.env("SHARED_TEST")
    before = Client.opened
    first = shared_client(Client, "a", secret, retry="1s")
    assert shared_client(Client, "a", secret, retry="1s") is first
    assert shared_client(Client, "a", secret, retry="2s") is not first
    monkeypatch.setenv("SHARED_TEST", "two")
    assert shared_client(Client, "a", secret, retry="1s") is not first
    assert Client.opened == before + 3
    if (child := os.fork()) == 0:
        os._exit(
            0 if shared_client(Client, "a", secret, retry="1s") is not first and Client.opened == before + 4 else 1
        )
    assert os.waitpid(child, 0)[1] == 0
    close_shared_clients()
    assert first.closed == 1
    assert shared_client(Client, "a", secret, retry="1s") is not first
    close_shared_clients()

"""SIGTERM ends a run like Ctrl-C, after a commit."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
import threading

import pyarrow.parquet as pq
import pytest

from riot_ops.core.interrupts import defer_interrupt, handle_termination


def test_termination_is_an_interrupt_and_the_default_returns():
    with pytest.raises(KeyboardInterrupt), handle_termination():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_handler_of_the_user_remains():
    seen = []
    previous = signal.signal(signal.SIGTERM, lambda *_: seen.append("user"))
    try:
        with handle_termination():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, previous)
    assert seen == ["user"]


def test_other_threads_install_no_handler():
    seen = []

    def look():
        with handle_termination():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.SIG_DFL]


def test_termination_is_deferred_like_an_interrupt():
    with handle_termination(), defer_interrupt() as check:
        signal.raise_signal(signal.SIGTERM)  # raises nothing
        with pytest.raises(KeyboardInterrupt):
            check()


def test_interrupt_is_deferred_only_while_busy():
    busy = [True]
    with defer_interrupt(lambda: busy[0]) as check:
        signal.raise_signal(signal.SIGINT)  # raises nothing
        with pytest.raises(KeyboardInterrupt):
            check()
        check()  # once only
        busy[0] = False
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        busy[0] = True
        with pytest.raises(KeyboardInterrupt):  # the second one, as the first is being handled
            signal.raise_signal(signal.SIGINT)


def test_second_interrupt_takes_effect_at_once():
    with defer_interrupt() as check:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        check()  # nothing is left


PROGRAM = """
import itertools, time
import riot_ops as ro

def records():
    for i in itertools.count():
        time.sleep(0.001)
        yield {"i": i}

flow = ro.Dataflow("endless")
flow.sink("out", flow.source("raw", schema={"i": "int64"}))
print("running", flush=True)
try:
    flow.run(records(), out=OUT, epoch="10min", buffering="latency", progress=lambda s: print(s.messages, flush=True))
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_within_the_first_epoch_keeps_the_records(tmp_path, number):
    out = tmp_path / "out"
    program = textwrap.dedent(PROGRAM).replace("OUT", repr(str(out)))
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "running\n"
    while int(process.stdout.readline()) < 100:
        pass
    process.send_signal(number)
    assert process.communicate(timeout=30)[0].endswith("interrupted\n")
    values = sorted(pq.read_table(out / "raw").column("i").to_pylist())
    assert len(values) >= 100 and values == list(range(len(values)))

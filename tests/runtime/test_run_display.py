"""The display of a run, in a kernel of Jupyter, in a terminal of IPython, and in neither."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import time
import weakref

import pytest

import riot_ops as ro

pytest.importorskip("ipykernel")
pytest.importorskip("jupyter_client")
from jupyter_client.manager import start_new_kernel

SECONDS = 60

SETUP = """
import riot_ops as ro
class Open(ro.MemorySource):
    over = False
    def finished(self, offset):
        return self.over and super().finished(offset)
def start(name="rooms"):
    flow = ro.Dataflow(name)
    flow.source("readings", {"value": "double"}).to("out")
    source = Open([{"value": 1.0}, {"value": 2.0}, {"value": 3.0}])
    return flow.launch(source), source
"""


class Kernel:
    """A kernel, and all that it has said."""

    def __init__(self):
        self.manager, self.client = start_new_kernel(startup_timeout=SECONDS)
        self.messages = []
        self.run(SETUP)

    def run(self, code):
        """Run a cell; return its outputs and its error."""
        asked = self.client.execute(code)
        self.until(
            lambda m: m["msg_type"] == "status" and m["content"]["execution_state"] == "idle" and self.of(m) == asked
        )
        found = [m for m in self.messages if self.of(m) == asked]
        errors = [m["content"] for m in found if m["msg_type"] == "error"]
        return [m for m in found if m["msg_type"] in ("display_data", "execute_result", "stream")], errors

    @staticmethod
    def of(message):
        return message["parent_header"].get("msg_id")

    def until(self, condition):
        """Listen until a message meets a condition."""
        end = time.monotonic() + SECONDS
        while True:
            message = self.client.get_iopub_msg(timeout=max(0.1, end - time.monotonic()))
            self.messages.append(message)
            if condition(message):
                return message

    def updated(self, id, text):
        """Listen until the display is updated with a text."""

        def shows(message):
            content = message["content"]
            return (
                message["msg_type"] == "update_display_data"
                and content["transient"]["display_id"] == id
                and text in content["data"]["text/html"]
            )

        return self.until(shows)


@pytest.fixture(scope="module")
def kernel():
    found = Kernel()
    yield found
    found.client.stop_channels()
    found.manager.shutdown_kernel(now=True)


@pytest.mark.long
def test_run_updates_in_place_until_it_ends(kernel):
    (shown,), errors = kernel.run("run, source = start()\nrun")
    assert not errors
    assert shown["msg_type"] == "display_data"
    id = shown["content"]["transient"]["display_id"]
    assert "rooms: running, in process" in shown["content"]["data"]["text/html"]
    assert shown["content"]["data"]["text/plain"].startswith("rooms (running)")
    update = kernel.updated(id, "rooms: running, in process")
    assert update["content"]["data"]["text/plain"].startswith("rooms (running)")
    assert kernel.of(update) == kernel.of(shown)  # it belongs to the cell of the display
    kernel.run("source.over = True")
    last = kernel.updated(id, "rooms: ended, in process")
    assert '<td>messages</td><td class="n">3</td>' in last["content"]["data"]["text/html"]
    outputs, _ = kernel.run(
        "import threading, time\n"
        "while any(t.name == 'riot_ops-display' for t in threading.enumerate()):\n"
        "    time.sleep(0.01)\n"
        "print(len([f for f in get_ipython().events.callbacks['post_run_cell'] if '_Updater' in str(f)]))"
    )
    assert [m["content"]["text"] for m in outputs] == ["0\n"]


@pytest.mark.long
def test_run_that_has_ended_is_shown_once(kernel):
    (shown,), _ = kernel.run("run, source = start()\nsource.over = True\nrun.wait();\nrun")
    assert "rooms: ended" in shown["content"]["data"]["text/html"]
    assert not shown["content"]["transient"].get("display_id")


@pytest.mark.long
def test_interrupt_of_the_kernel_ends_the_updates_and_not_the_run(kernel):
    (shown,), _ = kernel.run("run, source = start('long')\nrun")
    id = shown["content"]["transient"]["display_id"]
    waiting = kernel.client.execute("print('waiting', flush=True)\nimport time; time.sleep(600)")
    kernel.until(lambda m: m["msg_type"] == "stream" and kernel.of(m) == waiting)
    kernel.manager.interrupt_kernel()
    kernel.updated(id, "no longer updated, as the kernel was interrupted")
    kernel.until(
        lambda m: m["msg_type"] == "status" and m["content"]["execution_state"] == "idle" and kernel.of(m) == waiting
    )
    outputs, _ = kernel.run("print(run.active); run.stop(); print(run['readings'].num_rows)")
    assert "".join(m["content"]["text"] for m in outputs) == "True\n3\n"


@pytest.mark.long
def test_interrupted_cell_keeps_the_result(kernel):
    code = (
        "flow = ro.Dataflow('cell')\n"
        "flow.source('readings', {'value': 'double'}).to('out')\n"
        "def look(summary): print(summary.messages, flush=True)\n"
        "result = flow.run(Open([{'value': 1.0}, {'value': 2.0}]), progress=look)"
    )
    asked = kernel.client.execute(code)
    kernel.until(lambda m: m["msg_type"] == "stream" and m["content"]["text"] == "2\n" and kernel.of(m) == asked)
    kernel.manager.interrupt_kernel()
    error = kernel.until(lambda m: m["msg_type"] == "error" and kernel.of(m) == asked)["content"]
    assert error["ename"] == "RunInterruptedError"
    assert "partial_result" in error["evalue"]
    kernel.until(
        lambda m: m["msg_type"] == "status" and m["content"]["execution_state"] == "idle" and kernel.of(m) == asked
    )
    outputs, errors = kernel.run("print(flow.partial_result['readings']['value'].to_pylist())")
    assert not errors
    assert [m["content"]["text"] for m in outputs] == ["[1.0, 2.0]\n"]


@pytest.mark.long
def test_objects_have_html_in_a_kernel(kernel):
    (shown,), _ = kernel.run("ro.tasks.KalmanFilter(by='room')")
    assert "<td>room</td>" in shown["content"]["data"]["text/html"].replace("&#x27;", "")
    assert shown["content"]["data"]["text/plain"] == "KalmanFilter(by='room')"
    (shown,), _ = kernel.run("ro.show(ro.tasks.KalmanFilter(), [{'value': 1.0}])")
    assert {"text/plain", "text/html"} <= shown["content"]["data"].keys()


@pytest.mark.slow  # starts IPython, for what no part of it decides
def test_terminal_of_ipython_prints_the_text_once():
    code = SETUP + "run, source = start()\nrun\nsource.over = True\nrun.wait().messages\n"
    process = subprocess.run(
        [sys.executable, "-m", "IPython", "--simple-prompt", "--no-banner", "--colors=NoColor", "--quick"],
        input=code, capture_output=True, text=True, timeout=SECONDS, check=True,
    )  # fmt: skip
    assert process.stdout.count("rooms (running)") == 1, process.stdout
    assert "<div" not in process.stdout


def _open_run():
    class Open(ro.MemorySource):
        over = False

        def finished(self, offset):
            return self.over

    flow = ro.Dataflow("rooms")
    flow.source("readings", {"value": "double"}).to("out")
    source = Open([{"value": 1.0}])
    return flow.launch(source), source


def test_outside_of_ipython_nothing_is_printed_and_no_thread_starts(capsys):
    run, _ = _open_run()
    assert "rooms: running, in process" in run._repr_html_()
    assert not [thread for thread in threading.enumerate() if thread.name == "riot_ops-display"]
    run.stop()
    assert capsys.readouterr() == ("", "")


class _Handle:
    """What IPython returns for a display."""

    def __init__(self):
        self.shown = []

    def update(self, bundle, raw):
        self.shown.append(bundle["text/html"])


class _Shell:
    """What the updater uses of IPython."""

    def __init__(self):
        self.callbacks = []
        self.events = self

    def register(self, event, function):
        self.callbacks.append(function)

    def unregister(self, event, function):
        self.callbacks.remove(function)


class _FakeRun:
    """A run whose status can be as bad as one likes."""

    active = True
    error = None

    def status(self):
        if self.error is not None:
            raise self.error
        return {
            "dataflow": "x", "runner": "spark", "active": True, "error": None, "micro_batch": None, "messages": 0,
            "messages_per_second": 0.0, "records": {}, "rejected": 0, "late": 0, "reasons": {}, "seconds": 0.0,
            "steps": {}, "latency_seconds": {"p50": None, "p95": 0.25, "p99": 2.5}, "state_keys": 0,
        }  # fmt: skip


def _wait_for_end(shell):
    end = time.monotonic() + SECONDS
    while shell.callbacks:
        assert time.monotonic() < end
        time.sleep(0.005)


def test_display_does_not_hold_the_run(monkeypatch):
    from riot_ops.runtime import run_display

    monkeypatch.setattr(run_display, "UPDATE_SECONDS", 0.01)
    run, shell, handle = _FakeRun(), _Shell(), _Handle()
    run_display._Updater(run, handle, shell).start()
    gone = weakref.ref(run)
    del run
    _wait_for_end(shell)
    gc.collect()
    assert gone() is None


def test_display_ends_with_an_error_of_the_status(monkeypatch):
    from riot_ops.runtime import run_display

    monkeypatch.setattr(run_display, "UPDATE_SECONDS", 0.01)
    run, shell = _FakeRun(), _Shell()
    run.error = OSError("Spark is gone")
    run_display._Updater(run, _Handle(), shell).start()
    _wait_for_end(shell)


def test_status_of_a_query_says_so():
    from riot_ops.runtime.run_display import status_html

    shown = status_html(_FakeRun().status())
    assert "x: running, on Spark, 0.0 s" in shown
    assert '<td>latency (50, 95, 99 %)</td><td class="n">–, 250 ms, 2.5 s</td>' in shown
    assert '<td>micro-batch</td><td class="n">–</td>' in shown


@pytest.mark.spark
@pytest.mark.slow  # another Spark, in the kernel
def test_query_updates_in_place_until_it_ends(kernel):
    kernel.run("from riot_ops import spark as ros\nspark = ros.session()")
    code = (
        "import tempfile\n"
        "flow = ro.Dataflow('on_spark')\n"
        "flow.source('readings', {'value': 'double'}).to('out')\n"
        "source = ro.MemorySource([{'value': float(i)} for i in range(30)])\n"
        "query = flow.start(spark, source, out=tempfile.mkdtemp(), max_records=10)\n"
        "query"
    )
    outputs, errors = kernel.run(code)
    assert not errors
    (shown,) = (m for m in outputs if m["msg_type"] == "display_data")
    assert "on_spark: running, on Spark" in shown["content"]["data"]["text/html"]
    kernel.run("query.wait();")
    last = kernel.updated(shown["content"]["transient"]["display_id"], "on_spark: ended, on Spark")
    assert '<td>messages</td><td class="n">30</td>' in last["content"]["data"]["text/html"]
    kernel.run("spark.stop()")

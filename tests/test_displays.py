"""What objects show in a notebook and in a terminal: small, readable, and with names from outside as text."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.measure.metrics import Summary

SCRIPT = "<script>1"
FIELDS = {SCRIPT: "string", "room": "string", "value": "double"}


class _Document(HTMLParser):
    """The names of the elements and of their attributes, and the text."""

    def __init__(self, document):
        super().__init__(convert_charrefs=True)
        self.tags, self.attributes, self.text = set(), set(), ""
        self.feed(document)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data):
        self.text += data + "\n"


def _flow():
    flow = ro.Dataflow(SCRIPT)
    readings = flow.source("readings", FIELDS)
    flow.sink("out", readings.key_by("room").apply(t.MovingAverage(window=1), id="avg"))
    return flow


def _rows():
    return [{SCRIPT: SCRIPT, "room": SCRIPT, "value": 1.0}, {SCRIPT: "b", "room": "b", "value": SCRIPT}]


def _run():
    run = _flow().launch(_rows())
    run.wait()
    return run


def _session():
    session = t.KalmanFilter(by="room").session()
    session.push({"room": "a", "value": SCRIPT})
    return session


def _model():
    return ro.models.LinearModel(
        inputs=(SCRIPT, "x"), target="y", coefficients=(1.0, 2.0), intercept=0.5, rows=1200, start_ms=10**12,
        end_ms=10**12 + 10**8, metrics={SCRIPT: 0.25}, made_by=SCRIPT,
    )  # fmt: skip


OBJECTS = {
    "result": lambda: _flow().run(_rows()),
    "summary": lambda: Summary(4, {SCRIPT: 2, "errors": 2}, {f"avg: {SCRIPT}": 2}, seconds=0.5),
    "run": _run,
    "plan": lambda: _flow().plan(),
    "task": lambda: t.Lookup(table={SCRIPT: SCRIPT}, on=SCRIPT, columns="x"),
    "session": _session,
    "model": _model,
    "stream": lambda: _flow().stream("avg"),
    "keyed stream": lambda: _flow().stream("readings").key_by("room", SCRIPT),
    "windowed stream": lambda: _flow().stream("readings").key_by(SCRIPT).window("1min"),
    "trace": lambda: ro.show(_flow(), _rows()),
    "step": lambda: ro.show(_flow(), _rows())["readings"],
    "record": lambda: ro.show(_flow(), _rows()).record(0),
}


@pytest.mark.parametrize("name", OBJECTS)
def test_html_is_escaped_and_small_and_asks_for_nothing(name):
    document = OBJECTS[name]()._repr_html_()
    found = _Document(document)
    assert found.tags <= {"div", "style", "table", "caption", "tr", "th", "td", "p"}
    assert found.attributes <= {"class"}
    assert SCRIPT in found.text
    assert "://" not in document and "@import" not in document and "url(" not in document
    assert len(document) < 8_000


@pytest.mark.parametrize("name", OBJECTS)
def test_text_fits_a_terminal(name):
    pretty = pytest.importorskip("IPython.lib.pretty").pretty
    for text in (pretty(OBJECTS[name]()), *([] if name == "task" else [repr(OBJECTS[name]())])):
        assert max(map(len, text.splitlines())) <= 80, text


def test_control_characters_do_not_reach_the_terminal():
    """A name or a value with the codes of a terminal could hide text, or pass for other text."""
    bad = "a\x1b[31m\u202eb"
    flow = ro.Dataflow(bad)
    readings = flow.source("readings", {bad: "string", "value": "double"})
    readings.key_by(bad).apply(t.KalmanFilter(), id="kalman").to("out")
    rows = [{bad: bad, "value": 1.0}, {bad: bad, "value": bad}]
    model = ro.models.LinearModel(inputs=(bad,), target="y", coefficients=(1.0,), intercept=0.0)
    trace = ro.show(flow, rows)
    session = t.KalmanFilter(by=bad).session()
    for shown in (flow, flow.plan(), readings.key_by(bad), model, trace, trace["readings"], trace.record(1), session):
        for text in (repr(shown), getattr(shown, "_repr_html_", shown.__repr__)()):
            assert "\x1b" not in text
            assert "\u202e" not in text
    assert "a\\x1b[31m\\u202eb=a\\x1b[31m\\u202eb" in repr(trace)


def _text(shown):
    return [line for line in _Document(shown._repr_html_()).text.splitlines() if line and not line.startswith(".riot")]


def test_result_shows_counts_and_first_records():
    flow = ro.Dataflow("rooms")
    flow.source("readings", {"room": "string", "value": "double"}).to("out")
    shown = _text(flow.run([{"room": "hall", "value": float(i)} for i in range(7)]))
    assert shown[0].startswith("rooms: 7 messages in")
    assert shown[1:5] == ["stream", "records", "readings", "7"]
    at = shown.index("readings, first 5 records")
    assert shown[at + 1 :] == ["seq", "room", "value", *(x for i in range(5) for x in (str(i), "hall", f"{i}.0"))]


def test_result_in_files_is_not_read_for_its_display(tmp_path, monkeypatch):
    result = _flow().run(_rows(), out=tmp_path)
    monkeypatch.setattr(type(result), "__getitem__", lambda *_: pytest.fail("read"))
    assert "avg" in _text(result)


def test_run_shows_its_status():
    shown = _text(_run())
    assert shown[0].startswith(f"{SCRIPT}: ended, in process, ")
    assert shown[1:3] == ["messages", "2"]
    assert shown[shown.index("rejected", 1) + 1] == "1"
    at = shown.index("step")
    assert shown[at : at + 12] == [
        "step",
        "read",
        "rejected",
        "written",
        "readings",
        "2",
        "1",
        "avg",
        "1",
        "0",
        "1",
        "rejected for",
    ]
    assert shown[-2:] == ["readings: wrong_type", "1"]


PLAN = ["0: at the source", "1: by room", "avg", "readings", "keyed by room", "to sinks", "avg"]


def test_plan_shows_a_row_per_step():
    shown = _text(_flow().plan())
    assert shown[0].startswith("dataflow ")
    assert shown[1:] == ["stage", "step", "reads", *PLAN]
    assert repr(_flow().plan()) == str(_flow().plan())


def test_task_shows_its_purpose_and_parameters():
    shown = _text(t.KalmanFilter(process_noise=0.5))
    assert shown[0] == "KalmanFilter"
    assert shown[1].endswith(".")
    at = shown.index("process_noise")
    assert shown[at + 1 : at + 3] == ["0.5", f"default {t.KalmanFilter().process_noise}"]


def test_secret_of_a_task_is_not_shown():
    task = t.DistinctCount(secret=ro.Secret("hidden"))
    pretty = pytest.importorskip("IPython.lib.pretty").pretty
    for text in (task._repr_html_(), repr(task), pretty(task)):
        assert "hidden" not in text
    assert "***" in task._repr_html_()


def test_session_shows_keys_and_rejected_records():
    session = t.KalmanFilter(by="room").session()
    session.push({"room": "a", "value": 1.0})
    session.push({"room": "b", "value": "n/a"})
    assert repr(session) == "Session of KalmanFilter(by='room')\n  keys in state: 1, records rejected: 1"
    assert "wrong_type" in _text(session)
    assert repr(t.Filter("value > 1").session()).endswith("no state, records rejected: 0")


def test_model_shows_inputs_and_metrics():
    model = ro.models.LinearModel(
        inputs=tuple("abcdef"), target="y", coefficients=(1.0,) * 6, intercept=0.0, rows=1200, metrics={"r2": 0.93125}
    )
    assert repr(model) == "LinearModel of 'y' from 6 inputs (a, b, c, d, …); 1,200 training rows; r2 0.9313"
    assert _text(model) == [
        "LinearModel",
        "target",
        "y",
        "inputs",
        "6: a, b, c, d, e, f",
        "training rows",
        "1,200",
        "r2",
        "0.93125",
    ]


def test_stream_shows_its_task_and_fields():
    shown = _text(_flow().stream("avg"))
    assert shown[1] == "MovingAverage(by='room', window=1)"
    assert shown[shown.index("room") + 1] == "string"
    assert repr(_flow().stream("readings").key_by("room").window("1min")).endswith("by 'room', Tumbling(size=0:01:00)>")


def test_dataflow_shows_its_diagram():
    assert _flow()._repr_svg_().startswith("<svg")
    assert SCRIPT not in _flow()._repr_svg_()

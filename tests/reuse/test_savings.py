"""Savings per second in words and diagrams, by a simulated clock."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.graph.diagram import mermaid, svg
from riot_ops.reuse import LocalBackend, NullBackend, ReuseManager


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def flow(name, window=5, source="readings"):
    made = ro.Dataflow(name)
    stream = made.source(source, schema={"value": "double"}).to(t.KalmanFilter(), id="kalman")
    return made.sink("out", stream.to(t.MovingAverage(window=window), id="average"))


def readings(rows):
    return ro.MemorySource([{"value": float(i)} for i in range(rows)])


def shared(rows=300, batch=100):
    """Three dataflows over one stream: two equal ones, and one with a different last step."""
    clock, backend = Clock(), LocalBackend(batch)
    manager = ReuseManager(backend, clock=clock)
    source = readings(rows)
    for name, window in (("a", 5), ("b", 5), ("c", 7)):
        manager.submit(flow(name, window), source, ro.MemorySink())
    return manager, backend, clock


def test_savings_since_the_previous_report():
    manager, backend, clock = shared()
    assert "/s" not in manager.explain_sharing()
    backend.turn()
    clock.now += 4
    # 100 records in 4 s: saves two reads of the source, two Kalman filters and one average
    saved = "50.0/s messages and 75.0/s records are saved"
    assert manager.explain_sharing().splitlines()[-1] == f"  {saved}"
    first = "3 dataflows: 6 steps run in place of 12, 1 sources are read in place of 3"
    text = manager.diagram()  # at once: the rates stay
    assert text.splitlines()[-2:] == [f'  caption["{first}; {saved}"]', "  style caption fill:none,stroke:none"]
    assert '"readings.0<br/>a, b, c · 25.0/s"' in text and '"moving_average.4<br/>c · 25.0/s"' in text
    assert '"out.3<br/>a, b"' in text  # sinks have no rate
    texts = [one.text for one in ET.fromstring(manager.svg()).iter("{http://www.w3.org/2000/svg}text")]
    assert "a, b · 25.0/s" in texts and texts[-1] == f"{first}; {saved}"
    backend.turn()
    backend.turn()
    clock.now += 1
    assert manager.explain_sharing().splitlines()[-1] == "  400/s messages and 600/s records are saved"
    clock.now += 1
    assert manager.explain_sharing().splitlines()[-1] == "  0.0/s messages and 0.0/s records are saved"


def test_paused_dataflow_saves_nothing():
    manager, backend, clock = shared()
    manager.pause("b")
    backend.turn()
    clock.now += 1
    assert manager.explain_sharing().splitlines()[-1] == "  100/s messages and 100/s records are saved"
    manager.pause("c")
    clock.now += 1
    backend.turn()
    assert manager.explain_sharing().splitlines()[-1] == "  0.0/s messages and 0.0/s records are saved"


def test_source_with_different_fields_is_read_once():
    clock, backend = Clock(), LocalBackend(100)
    manager = ReuseManager(backend, clock=clock)
    rows = ro.MemorySource([{"value": float(i), "place": "x"} for i in range(300)])
    for name, schema in (("a", {"value": "double"}), ("b", {"value": "double", "place": "string"})):
        made = ro.Dataflow(name)
        manager.submit(made.sink("out", made.source("readings", schema=schema)), rows, ro.MemorySink())
    backend.turn()
    clock.now += 1
    *_, last = manager.explain_sharing().splitlines()
    assert last == "  100/s messages and 0.0/s records are saved", "alone each would have read 100"
    assert backend.stats()["messages"] == 100 and manager.stats()["sources"] == 1
    # a new dataflow has read less
    made = ro.Dataflow("c")
    manager.submit(made.sink("out", made.source("readings", schema={"place": "string"})), rows, ro.MemorySink())
    manager.pause("a")
    counts = backend.stats()["records"]
    backend.stats = lambda: {"records": {step: n + (10 if step == "readings.4" else 40) for step, n in records.items()}}
    records = {"readings.4": 0, **counts}
    clock.now += 1
    assert "10.0/s messages" in manager.explain_sharing()


def test_records_before_a_restart_do_not_count(tmp_path):
    clock = Clock()

    def begun():
        backend = LocalBackend(100, folder=tmp_path / "back")
        return backend, ReuseManager(
            backend, log=tmp_path / "log", rebind=lambda name, flow: (readings(300), ro.MemorySink()), clock=clock
        )

    backend, manager = begun()
    for name in "ab":
        manager.submit(flow(name), readings(300), ro.MemorySink())
    backend.turn()
    manager.close()
    backend, manager = begun()
    clock.now += 2
    assert backend.stats()["records"]["readings.0"] == 100
    assert manager.explain_sharing().splitlines()[-1] == "  0.0/s messages and 0.0/s records are saved"


def test_restarted_count_gives_no_negative_rate():
    backend, clock = NullBackend(), Clock()
    counts = {"readings.0": 500}
    backend.stats = lambda: {"fragments": 1, "idle": 0, "records": dict(counts)}
    manager = ReuseManager(backend, clock=clock)
    manager.submit(flow("a"))
    counts["readings.0"], clock.now = 20, 102.0
    assert '"readings.0<br/>a · 0.0/s"' in manager.diagram()
    counts["readings.0"], clock.now = 60, 104.0
    assert '"readings.0<br/>a · 20.0/s"' in manager.diagram()


def test_null_back_end_has_no_rates():
    clock = Clock()
    manager = ReuseManager(clock=clock)
    for name in "ab":
        manager.submit(flow(name))
    clock.now += 10
    first = "2 dataflows: 4 steps run in place of 8, 1 sources are read in place of 2"
    assert manager.explain_sharing() == f"{first}\n  4 steps are used by 2"
    assert "/s" not in manager.svg().replace("/svg", "") and f'caption["{first}"]' in manager.diagram()


@pytest.mark.parametrize("caption", ["", 'a "quoted" <line>'])
def test_caption_stands_below_the_boxes(caption):
    made = flow("f")
    assert mermaid(made, None, caption).startswith(mermaid(made))
    assert ("caption" in mermaid(made, None, caption)) == bool(caption)
    plain, captioned = ET.fromstring(svg(made)), ET.fromstring(svg(made, None, caption * 20))
    heights = [float(one.get("height")) for one in (plain, captioned)]
    assert (heights[0] < heights[1]) == bool(caption)
    if caption:
        last = [*captioned.iter("{http://www.w3.org/2000/svg}text")][-1]
        assert last.text == caption * 20 and heights[0] <= float(last.get("y")) < heights[1]
        assert float(captioned.get("width")) > float(plain.get("width"))

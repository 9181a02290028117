"""The live page in a real browser, during a run."""

from __future__ import annotations

import json
import re

import pyarrow as pa
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.cli.reuse_server import ReuseServer
from riot_ops.monitoring import LiveServer, Monitor, SharedMonitor
from tests.reuse.serving import flow as shared_flow
from tests.runtime.test_background_run import Ticks

pytestmark = [pytest.mark.integration, pytest.mark.long]

HOSTILE = "<img src=x onerror=document.title='attacked'>"


class Messages(Ticks):
    """Messages with readings of three rooms; each tenth is mark-up instead."""

    schema = pa.schema([("seq", pa.int64()), ("payload", pa.string())])

    def read(self, split):
        seq = range(split["from"], split["to"])
        texts = [HOSTILE if n % 10 == 3 else json.dumps({"room": f"r{n % 3}", "value": n % 50}) for n in seq]
        yield pa.record_batch({"seq": list(seq), "payload": texts}, schema=self.schema)


def watched():
    flow = ro.Dataflow("rooms <b>bold</b>")
    messages = flow.source("messages", schema={"payload": "string"})
    readings = messages.to(t.ParseJSON(schema={"room": ("room", "string"), "value": ("value", "double")}), id="parse")
    return flow.sink("out", readings.to(t.KalmanFilter(by="room"), id="smooth"))


def count(text):
    return float(re.sub("[^0-9.]", "", text))


@pytest.fixture
def live():
    with watched().launch(Messages(), buffering="latency") as run, ro.live(run, every="200ms") as found:
        yield found


def test_figures_move_and_rejected_text_stays_text(live, open_page):
    page = open_page(live.url, viewport={"width": 1400, "height": 900})
    expect(page.locator("#state")).to_have_text("running")
    expect(page.locator("h1")).to_have_text("rooms <b>bold</b>")
    box = page.locator("#figures dd").first
    first = count(box.inner_text())
    page.wait_for_function(
        "([box, first]) => Number(box.innerText.replaceAll(',', '')) > first", arg=[box.element_handle(), first]
    )
    expect(page.locator("#rejected-rows tr").first).to_be_visible()
    assert page.locator("#rejected-rows td.raw").first.inner_text().endswith(f'"payload": "{HOSTILE}"}}')
    assert page.locator("#rejected-rows img").count() == 0 and page.title() != "attacked"
    rate, time, wrong = page.locator('[data-node="parse"] .note').all()
    expect(wrong).to_contain_text("rejected")
    expect(rate).to_contain_text("/s")
    expect(time).to_contain_text("a batch")
    expect(page.locator('[data-node="out"] .note').nth(1)).to_contain_text("from source")
    assert page.locator("[data-rate]").count() == 3  # on each edge
    for chart in ("Throughput", "Latency, source to sink", "Keys with state"):
        section = page.locator("#charts section", has=page.locator("h2", has_text=chart))
        assert _is_drawn(section.locator("canvas")), chart


def test_key_of_the_values_is_chosen(live, open_page):
    page = open_page(live.url)
    expect(page.locator("#stream")).to_have_value("smooth")
    expect(page.locator("#value")).to_have_value("value")
    expect(page.locator("#key")).to_have_value("room")  # with the fewest values
    page.select_option("#is", "r2")
    assert _is_drawn(page.locator("#values canvas"))
    page.wait_for_timeout(500)
    assert page.locator("#is").input_value() == "r2"  # it stays chosen


def test_reload_and_end(live, open_page):
    page = open_page(live.url)
    expect(page.locator("#state")).to_have_text("running")
    page.reload()
    expect(page.locator("#state")).to_have_text("running")
    live.monitor._run.stop()
    expect(page.locator("#state")).to_have_text("ended")
    page.reload()  # the last state is kept
    expect(page.locator("#state")).to_have_text("ended")
    assert count(page.locator("#figures dd").first.inner_text()) == live.monitor.state()["status"]["messages"]


def test_kept_page_needs_no_server(live, open_page, tmp_path):
    page = open_page(live.url)
    expect(page.locator("#rejected-rows tr").first).to_be_visible()
    live.save(tmp_path / "kept.html")
    page.goto("about:blank")
    live.close()
    kept = open_page((tmp_path / "kept.html").as_uri())
    expect(kept.locator("h1")).to_have_text("rooms <b>bold</b>")
    assert kept.locator("#rejected-rows td.raw").first.inner_text().endswith(f'"payload": "{HOSTILE}"}}')
    assert _is_drawn(kept.locator("#charts canvas").first)


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light")])
def test_page_fits_and_can_be_used_by_all(live, open_page, width, scheme, tmp_path):
    page = open_page(live.url, viewport={"width": width, "height": 900}, color_scheme=scheme)
    expect(page.locator("#rejected-rows tr").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.screenshot(path=tmp_path / "page.png", full_page=True)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "diagram"  # the first thing that scrolls


@pytest.fixture
def shared(tmp_path):
    """A manager's page that allows actions, with the manager."""
    server = ReuseServer(tmp_path / "kept", "local", "always", "1s")
    try:
        monitor = SharedMonitor(server.manager, every="200ms")
        with LiveServer(monitor, token=ro.Secret("key"), actions=server.act) as page:
            yield page, server.manager
    finally:
        server.close()


def test_shared_dataflows_are_submitted_and_removed(shared, open_page, tmp_path):
    live, manager = shared
    (tmp_path / "in.csv").write_text("device,value\n" + "a,1.5\n" * 40, encoding="utf-8")
    page = open_page(f"{live.url}?token=key", viewport={"width": 1400, "height": 900})
    expect(page.locator("h1")).to_have_text("shared dataflows")
    assert "key" not in page.url
    for n, name in enumerate(("mean", "mean <b>bold</b>"), 1):
        one = {"dataflow": shared_flow(name).to_dict(), "sources": {"readings": {"file": str(tmp_path / "in.csv")}}}
        page.fill("#request", json.dumps(one))
        page.click("#explain")
        expect(page.locator("#answer")).to_contain_text("steps run already")
        page.click("#submit button[type=submit]")
        expect(page.locator("#dataflow-rows tr")).to_have_count(n)
        expect(page.locator("#dataflow-rows tr").last).to_contain_text(name)
    assert manager.names == ["mean", "mean <b>bold</b>"]
    expect(page.locator("#figures div", has_text="steps that run")).to_contain_text("3 of 6")
    expect(page.locator("#diagram [data-node]")).to_have_count(3)
    expect(page.locator("#dataflow-rows tr").first.locator("td").nth(3)).to_have_text("8")
    page.fill("#request", '{"dataflow": 5}')
    page.click("#explain")
    expect(page.locator("#answer")).to_contain_text("dataflow")
    open_page.expect_message("400")  # the browser says that the request was refused
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.click("[data-remove='mean']")
    expect(page.locator("[data-remove='mean']")).to_have_text("Remove for good")
    assert len(manager.names) == 2, "once is not enough"
    page.keyboard.press("Enter")  # the button keeps the focus
    expect(page.locator("#dataflow-rows tr")).to_have_count(1)
    expect(page.locator("#answer")).to_contain_text("mean: ")
    assert manager.names == ["mean <b>bold</b>"]


def test_page_of_a_manager_offers_no_action_by_itself(tmp_path, open_page):
    server = ReuseServer(tmp_path / "kept", "local")
    try:
        with LiveServer(SharedMonitor(server.manager)) as live:
            page = open_page(live.url, viewport={"width": 400, "height": 900}, color_scheme="dark")
            expect(page.locator("#h-dataflows")).to_be_visible()
            expect(page.locator("#h-submit")).to_be_hidden()
            expect(page.locator("th.action")).to_be_hidden()
            assert page.evaluate("document.documentElement.scrollWidth") <= 400
    finally:
        server.close()


def test_page_waits_for_the_run(open_page):
    with LiveServer() as live:
        page = open_page(live.url)
        expect(page.locator("#state")).to_have_text("waiting for the run")
        with watched().launch(Messages(), buffering="latency") as run:
            live.watch(Monitor(run, every="200ms"))
            expect(page.locator("#state")).to_have_text("running")
            expect(page.locator("h1")).to_have_text("rooms <b>bold</b>")
        expect(page.locator("#state")).to_have_text("ended")


@pytest.mark.slow  # a clock: meaningless on a busy machine
def test_first_paint_within_a_second(live, open_page):
    page = open_page(live.url)
    expect(page.locator("#state")).to_have_text("running")
    paints = page.evaluate("performance.getEntriesByType('paint').map((p) => [p.name, p.startTime])")
    assert dict(paints)["first-contentful-paint"] < 1000


class Steady(Messages):
    """The same without a lock, which Spark could not send to its workers."""

    def __init__(self):
        pass

    def latest(self, start, limit=None):
        return {"at": start["at"] + 500}


@pytest.mark.slow  # a query without an end, and a browser
@pytest.mark.spark
def test_page_of_a_query_on_spark(spark, open_page):
    query = watched().start(spark, Steady(), trigger="1s")
    try:
        with ro.live(query, every="500ms") as live:
            page = open_page(live.url, viewport={"width": 1400, "height": 900})
            expect(page.locator("#runner")).to_have_text("on Spark")
            box = page.locator("#figures dd").first
            for n in (0, 500):  # it moves, and goes on
                page.wait_for_function(
                    "([box, n]) => Number(box.innerText.replaceAll(',', '')) > n", arg=[box.element_handle(), n],
                    timeout=400_000,
                )  # fmt: skip
            expect(page.locator("#rejected-rows tr").first).to_be_visible(timeout=60_000)
            assert page.locator("#rejected-rows td.raw").first.inner_text().endswith(f'"payload": "{HOSTILE}"}}')
            assert page.locator("#rejected-rows img").count() == 0 and page.title() != "attacked"
            for chart in ("Throughput", "Parts of a micro-batch", "Memory", "Memory of the state", "Lag: age"):
                section = page.locator("#charts section", has=page.locator("h2", has_text=chart)).first
                expect(section).to_be_visible(timeout=60_000)
                assert _is_drawn(section.locator("canvas")), chart
            expect(page.locator('[data-node="out"] .note').nth(1)).to_contain_text("from source")
            found = Axe().run(page)
            assert found.violations_count == 0, found.generate_report()
            query.stop()
            expect(page.locator("#state")).to_have_text("ended")
    finally:
        query.stop()


def _is_drawn(canvas):
    """Whether more than one colour is on it."""
    canvas.scroll_into_view_if_needed()
    return canvas.evaluate(
        "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size > 1"
    )

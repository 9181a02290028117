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


def _is_drawn(canvas):
    """Whether more than one colour is on it."""
    canvas.scroll_into_view_if_needed()
    return canvas.evaluate(
        "c => new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size > 1"
    )

"""An outcome of a known run, and a parser of pages."""

from __future__ import annotations

import json
import math
from html.parser import HTMLParser
from typing import Any

import numpy as np
from riot_bench.harness.outcome import Outcome
from riot_bench.harness.peak_rate import PeakRate
from typer.testing import CliRunner

from riot_ops.cli.main import app
from riot_ops.measure.metrics import Stability
from riot_ops.measure.probe_report import ARRIVED, SENT, Report
from riot_ops.measure.processes import Usage

FIGURES = {
    "peak",
    "rate",
    "selectivity",
    "sigma",
    "silent",
    "task-latency",
    "latency-p25",
    "latency-p50",
    "latency-p75",
    "latency-p99",
    "jitter",
    "jitter-spread",
    "cpu",
    "memory",
}


def outcome(name: str = "KAL", *, silent: bool = False, stable: bool = True, sigma: float = 1.0) -> Outcome:
    """Ten seconds at 100 messages per second, each delivered after 20 ms."""
    times = [(50.0 + i, 50.99 + i, 50.99 + i) for i in range(10)]
    sent = np.array([(0, 100 * i, 100 * i + 99, 100, *times[i], 100, math.nan) for i in range(10)], SENT)
    arrived = np.array([(0, i, 1.0, 50.0 + i / 100 + 0.02) for i in range(0 if silent else 1000)], ARRIVED)
    usage = Usage(50.0 + np.arange(1.0, 10.0), np.full(9, 0.5), np.full(9, 100.0 * 2**20))
    report = Report(sent, arrived.reshape(-1), ["s"], ["s"], {"s": frozenset("s")}, usage)
    peak = PeakRate(100.0, ((80.0, True), (100.0, True), (105.0, False)), converged=stable)
    kept_up = Stability(stable, 0.0, 0.0)
    nothing = ("s",) if silent else ()
    sigma = math.nan if silent else sigma
    part = {"since": 1.0, "until": 10.0, "interval_s": 1.0, "cores": 2}
    return Outcome.of(name, "Statistical", peak, report, kept_up, **part, sigma=sigma, silent=nothing)


class Page(HTMLParser):
    """References of a page, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.references: list[str] = []
        self.images: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        assert tag != "script"
        for name in ("src", "href", "data", "action", "srcset", "background"):
            if name in given:
                self.references.append(given[name] or "")
        if tag == "img":
            self.images.append(given["src"] or "")
            assert given["alt"]

    def handle_data(self, data: str) -> None:
        self.text += data


def lines(*args: str) -> list[dict[str, Any]]:
    result = CliRunner().invoke(app, ["bench", *args, "--json", "--quick"], catch_exceptions=False)
    assert result.exit_code == 0
    found = [json.loads(line) for line in result.stdout.splitlines()]
    keys = {"measure", "value", "values", "unit", "against", "reach", "at_most", "published", "load", "machine"}
    assert all(set(m) == keys for m in found)
    return found

"""The files of a report: HTML page, Markdown, CSV and charts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from riot_bench.report.charts import Chart, draw_chart
from riot_bench.report.page import render_page
from riot_bench.report.plan import PlannedExperiment, plan_with_stored
from riot_bench.report.store import ResultStore
from riot_bench.report.tables import to_csv, to_markdown
from riot_ops.core.paths import write_atomic

__all__ = ["PAGE", "write_report"]

PAGE, MARKDOWN, CHARTS = "index.html", "report.md", "pictures"
TITLE = "riot_ops: experiments of the papers, repeated"


def write_report(store: ResultStore, chosen: Sequence[PlannedExperiment], title: str = TITLE) -> Path:
    """Write a report of all stored results and all chosen experiments; return the path of the page.

    Each experiment is shown in the full form if it has one. The folder also gets ``report.md``, a CSV file per suite,
    and the charts as PNG in ``pictures/``. Files are replaced atomically, so readers never see a partial file.
    """
    results = store.shown(plan_with_stored(chosen, store.stored()))
    drawn: dict[str, list[Chart]] = {}
    named: dict[str, list[tuple[str, str, str]]] = {}
    folder = store.folder
    (folder / CHARTS).mkdir(parents=True, exist_ok=True)
    for result in results:
        experiment = result.planned.experiment
        for figure in experiment.figures:
            path = f"{CHARTS}/{_plain(f'{experiment.key}-{figure.key}')}.png"
            chart = draw_chart(figure, result.measures)
            if chart is None:
                (folder / path).unlink(missing_ok=True)  # an earlier report may have drawn it
                continue
            write_atomic(folder / path, chart.png)
            drawn.setdefault(experiment.key, []).append(chart)
            named.setdefault(experiment.key, []).append((path, figure.title, chart.note))
    for suite, of_suite in groupby(results, key=lambda result: result.planned.suite):
        write_atomic(folder / f"{_plain(suite)}.csv", to_csv(of_suite).encode())
    write_atomic(folder / MARKDOWN, to_markdown(title, results, named).encode())
    page = folder / PAGE
    write_atomic(page, render_page(title, results, drawn).encode())
    return page


def _plain(name: str) -> str:
    return re.sub(r"[^\w.]+", "-", name)

"""The files of a report: the page, Markdown, CSV and pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from riot_bench.report.charts import Picture, draw
from riot_bench.report.page import page
from riot_bench.report.plan import Planned, with_stored
from riot_bench.report.store import Store
from riot_bench.report.tables import to_csv, to_markdown
from riot_ops.core.paths import write_whole

__all__ = ["PAGE", "write"]

PAGE, MARKDOWN, PICTURES = "index.html", "report.md", "pictures"
TITLE = "riot_ops: experiments of the papers, repeated"


def write(store: Store, chosen: Sequence[Planned], title: str = TITLE) -> Path:
    """Write a report of all that is stored, and of experiments that were chosen and are not; returns the page.

    Each experiment is in the full form where that is there. Beside the page stand ``report.md``, a CSV file per suite,
    and ``pictures/`` with the figures as PNG. Each file is there as a whole, the earlier one or the new one, for
    whoever looks meanwhile.
    """
    results = store.shown(with_stored(chosen, store.stored()))
    drawn: dict[str, list[Picture]] = {}
    named: dict[str, list[tuple[str, str, str]]] = {}
    folder = store.folder
    (folder / PICTURES).mkdir(parents=True, exist_ok=True)
    for result in results:
        experiment = result.planned.experiment
        for figure in experiment.figures:
            path = f"{PICTURES}/{_plain(f'{experiment.key}-{figure.key}')}.png"
            picture = draw(figure, result.measures)
            if picture is None:
                (folder / path).unlink(missing_ok=True)  # of what was shown before
                continue
            write_whole(folder / path, picture.png)
            drawn.setdefault(experiment.key, []).append(picture)
            named.setdefault(experiment.key, []).append((path, figure.title, picture.note))
    for suite, of_suite in groupby(results, key=lambda result: result.planned.suite):
        write_whole(folder / f"{_plain(suite)}.csv", to_csv(of_suite).encode())
    write_whole(folder / MARKDOWN, to_markdown(title, results, named).encode())
    made = folder / PAGE
    write_whole(made, page(title, results, drawn).encode())
    return made


def _plain(name: str) -> str:
    return re.sub(r"[^\w.]+", "-", name)

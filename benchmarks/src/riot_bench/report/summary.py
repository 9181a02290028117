"""The summary of all results: one row for each figure that the documentation shows.

``python -m riot_bench.report.summary SUMMARY.csv RESULTS.jsonl...`` puts new results, as ``riot-ops bench --json`` and
``riot-ops report`` write them, into a summary. A figure replaces the row of its name; all other rows are unchanged,
with the commit and the day on which they were measured.
"""

from __future__ import annotations

import csv
import io
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from riot_ops.core.errors import ConfigError
from riot_ops.core.paths import write_atomic

__all__ = ["BUSY_LOAD", "Change", "Figure", "markdown", "matching", "merged", "read", "read_changes", "write"]

#: Load average before a run above which a figure is marked; the benchmark's own earlier work causes up to 2.
BUSY_LOAD = 2.0

#: A description longer than this is cut between words.
MAX_AGAINST = 60


@dataclass(frozen=True)
class Figure:
    """A row of the summary; all cells are texts.

    Attributes
    ----------
    measure : str
        Name; its first part is the suite.
    value, unit : str
        The median of the runs.
    interval : str
        The range of the runs, or a 95 % interval from the parts of one run (``within the run``).
    runs : str
        How many runs the value is the median of.
    load : str
        The machine's highest load average before a run.
    form : str
        ``full`` or ``quick``; a quick form is not for quoting.
    reach : str
        The target of the figure, with its sign.
    published : str
        The paper's result, on its machines.
    against : str
        What the figure is compared with, or how it was measured.
    machine, commit, date : str
        Where, at which commit and on which day it was measured.
    """

    measure: str
    value: str
    unit: str
    interval: str
    runs: str
    load: str
    form: str
    reach: str
    published: str
    against: str
    machine: str
    commit: str
    date: str

    @classmethod
    def of_runs(cls, runs: Sequence[Mapping[str, Any]], commit: str, date: str) -> Figure:
        """Return the row of a measure from the JSON objects of its runs, the newest last."""
        newest = runs[-1]
        values = [value for run in runs for value in run.get("values") or [run["value"]] if value is not None]
        sample = newest.get("sample") or ()
        interval = ""
        if len(values) > 1:
            interval = f"{min(values):.4g}–{max(values):.4g}"
        elif len(sample) > 1:
            mean, half = statistics.mean(sample), 1.96 * statistics.stdev(sample) / len(sample) ** 0.5
            interval = f"{mean - half:.4g}–{mean + half:.4g} within the run"
        loads = [before for run in runs for before, _ in run.get("load") or ()]
        against = str(newest.get("against", ""))
        if len(against) > MAX_AGAINST:
            against = against[:MAX_AGAINST].rsplit(" ", 1)[0] + " …"
        reach, published = newest.get("reach"), newest.get("published")
        return cls(
            measure=str(newest["measure"]),
            value=f"{statistics.median(values):.4g}" if values else "",
            unit=str(newest.get("unit", "")),
            interval=interval,
            runs=str(len(values)),
            load=f"{max(loads):.2g}" if loads else "",
            form="quick" if newest.get("quick") else "full",
            reach="" if reach is None else f"{'≤' if newest.get('at_most') else '≥'} {reach:g}",
            published="" if published is None else f"{published:.4g}",
            against=against,
            machine=_short_machine(str(newest.get("machine", ""))),
            commit=str(newest.get("commit") or commit)[:7],
            date=str(newest.get("time") or date)[:10],
        )


@dataclass(frozen=True)
class Change:
    """A change of what a figure measures, after which an older figure no longer describes the code.

    Attributes
    ----------
    pattern : str
        Measures that the change concerns, such as ``dspbench/*/spark-*``.
    date : str
        Day of the change; figures of that day or later are not concerned.
    what : str
        What changed.
    """

    pattern: str
    date: str
    what: str

    def outdates(self, figure: Figure) -> bool:
        """Return whether a figure was measured before the change.

        >>> row = Figure("a/x", "9", "ratio", "", "1", "", "full", "", "", "", "M", "0123abc", "2026-01-01")
        >>> [Change("a/*", date, "").outdates(row) for date in ("2026-01-01", "2026-01-02")]
        [False, True]
        """
        return figure.date < self.date and fnmatchcase(figure.measure, self.pattern)


def _short_machine(machine: str) -> str:
    """Return the processor and its cores.

    >>> _short_machine("Intel(R) Xeon(R) Processor, 2 cores, 24 GiB, Python 3.11.7")
    'Intel Xeon, 2 cores'
    """
    return ", ".join(machine.replace("(R)", "").replace(" Processor", "").split(", ")[:2])


def read(path: Path) -> list[Figure]:
    """Read a summary."""
    return [Figure(**row) for row in _rows(path, Figure)]


def read_changes(path: Path) -> list[Change]:
    """Read the changes after which figures were not measured again (``changes.csv`` beside the summary)."""
    return [Change(**row) for row in _rows(path, Change)]


def _rows(path: Path, kind: type[Figure | Change]) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        wanted = [field.name for field in fields(kind)]
        if rows.fieldnames != wanted:
            raise ConfigError(
                f"{path} must have the columns {', '.join(wanted)}, got {', '.join(rows.fieldnames or ())}"
            )
        return list(rows)


def write(path: Path, figures: Iterable[Figure]) -> None:
    """Write a summary, sorted by measure."""
    text = io.StringIO(newline="")
    rows = csv.DictWriter(text, [field.name for field in fields(Figure)], lineterminator="\n")
    rows.writeheader()
    rows.writerows(asdict(figure) for figure in sorted(figures, key=lambda figure: figure.measure))
    write_atomic(path, text.getvalue().encode())


def merged(figures: Iterable[Figure], results: Iterable[Mapping[str, Any]], commit: str, date: str) -> list[Figure]:
    """Return a summary with new results in place of the rows of their names.

    Results in the full form win over those in the quick one, and only runs at the newest commit are put together.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for result in results:
        if "measure" in result and result.get("value") is not None:
            found.setdefault(str(result["measure"]), []).append(result)
    rows = {figure.measure: figure for figure in figures}
    for name, every in found.items():
        full = [run for run in every if not run.get("quick")] or every
        newest = full[-1].get("commit")
        figure = Figure.of_runs([run for run in full if run.get("commit") == newest], commit, date)
        rows[name] = replace(figure, published=figure.published or (rows[name].published if name in rows else ""))
    return list(rows.values())


def matching(figures: Iterable[Figure], patterns: Sequence[str]) -> list[Figure]:
    """Return the figures whose measures fit a pattern, such as ``kernels/*``, in the order of the patterns."""
    every = list(figures)
    found: dict[str, Figure] = {}
    for pattern in patterns:
        found.update({f.measure: f for f in every if fnmatchcase(f.measure, pattern) and f.measure not in found})
    return list(found.values())


def markdown(figures: Sequence[Figure], paper: bool = False, changes: Sequence[Change] = ()) -> str:
    """Return a table of figures; those that miss their reach, ran beside other work or are outdated are marked.

    >>> row = Figure("a/x", "9", "ratio", "", "1", "", "full", "≥ 10", "", "", "M", "0123abc", "2026-01-01")
    >>> print(markdown([row]))
    | measure | value | interval | runs | unit | reach | against | measured |
    |---|---:|---:|---:|---|---:|---|---|
    | `a/x` | **9** (missed) |  | 1 | ratio | ≥ 10 |  | 0123abc, 2026-01-01 |
    >>> print(markdown([replace(row, load="2.6")], changes=[Change("a/*", "2026-01-02", "all rows are compared")]))
    | measure | value | interval | runs | unit | reach | against | measured |
    |---|---:|---:|---:|---|---:|---|---|
    | `a/x` | **9** (missed) (busy machine: load 2.6) |  | 1 | ratio | ≥ 10 |  | **not measured since 0123abc**, \
2026-01-01: all rows are compared |
    """
    titles = [
        "measure",
        "value",
        "interval",
        "runs",
        "unit",
        *(["paper"] if paper else []),
        "reach",
        "against",
        "measured",
    ]
    rule = ["---", "---:", "---:", "---:", "---", *(["---:"] if paper else []), "---:", "---", "---"]
    lines = [f"| {' | '.join(titles)} |", f"|{'|'.join(rule)}|"]
    for figure in figures:
        changed = [change.what for change in changes if change.outdates(figure)]
        where = f"**not measured since {figure.commit}**" if changed else figure.commit
        where += f", {figure.date}" + (", quick form" if figure.form == "quick" else "")
        where += f": {'; '.join(changed)}" if changed else ""
        value = f"**{_shown(figure.value)}** (missed)" if _missed(figure) else _shown(figure.value)
        if figure.load and float(figure.load) > BUSY_LOAD:
            value += f" (busy machine: load {figure.load})"
        cells = [f"`{figure.measure}`", value, figure.interval, figure.runs, figure.unit]
        cells += [_shown(figure.published)] if paper else []
        cells += [figure.reach, figure.against.replace("|", "\\|"), where]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _shown(number: str) -> str:
    try:
        return f"{float(number):,.0f}" if abs(float(number)) >= 1000 else number
    except ValueError:
        return number


def _missed(figure: Figure) -> bool:
    sign, _, reach = figure.reach.partition(" ")
    if not reach or not figure.value:
        return False
    return float(figure.value) > float(reach) if sign == "≤" else float(figure.value) < float(reach)


def main(summary: str, *results: str) -> None:
    """Put results into a summary."""
    path = Path(summary)
    lines = [line for name in results for line in Path(name).read_text(encoding="utf-8").splitlines() if line.strip()]
    git = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(  # noqa: S603 - a fixed command
        git, capture_output=True, text=True, check=False
    ).stdout.strip()
    known = read(path) if path.exists() else []
    write(path, merged(known, map(json.loads, lines), commit, datetime.now(UTC).date().isoformat()))
    print(f"{path}: {len(read(path))} figures")


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])

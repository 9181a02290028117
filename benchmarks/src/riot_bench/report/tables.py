"""Results as tables: for the page, in Markdown and as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from riot_bench.harness.measure import Measure
from riot_bench.report.intervals import ENOUGH, sure
from riot_bench.report.plan import absent
from riot_bench.report.store import DONE, LATE, MISSING, Result, elsewhere
from riot_bench.suites.riotbench.tables import loads, short

__all__ = [
    "COLUMNS",
    "amount",
    "cells",
    "confidence",
    "forms",
    "lacking",
    "remarks",
    "reproduced",
    "state",
    "to_csv",
    "to_markdown",
    "where",
]

#: Columns of a table of measures, and whether they are numbers.
COLUMNS = {
    "measure": False,
    "value": True,
    "mean, 95 % interval": True,
    "runs": True,
    "unit": False,
    "published": True,
    "reach": True,
    "met": False,
    "how": False,
    "load": True,
}
CSV = (
    *(
        "suite",
        "experiment",
        "measure",
        "value",
        "unit",
        "mean",
        "low",
        "high",
        "runs",
        "values",
        "within_run",
        "sample",
    ),
    *(
        "lower_bound",
        "published",
        "reach",
        "at_most",
        "met",
        "against",
        "load",
        "machine",
        "commit",
        "seed",
        "quick",
        "time",
    ),
)


def confidence(measure: Measure) -> str:
    """The mean of a measure and its interval, whether they are of one run, or how few values there are for one.

    >>> confidence(Measure("x", 2.0, "s", values=(1.0, 2.0, 3.0))), confidence(Measure("x", 2.0, "s"))
    ('2 (0–4.48)', 'too few: 1')
    >>> confidence(Measure("x", 2.0, "s", sample=(1.0, 2.0, 3.0)))
    '2 (0–4.48) within the run'
    """
    found = sure(measure)
    if not found.known:
        return f"too few: {found.of}"
    return f"{short(found.mean)} ({short(found.low)}–{short(found.high)})" + " within the run" * found.within


def amount(measure: Measure) -> str:
    """The value, and whether it is a lower bound; of what nothing is known neither is told.

    >>> amount(Measure("x", 2.0, "s", lower_bound=True))
    '≥ 2'
    """
    return "≥ " * (measure.lower_bound and math.isfinite(measure.value)) + short(measure.value)


def cells(measure: Measure) -> list[str]:
    """A row of :data:`COLUMNS`."""
    return [
        measure.measure,
        amount(measure),
        confidence(measure),
        str(len(measure.known)),
        measure.unit,
        "" if measure.published is None else short(measure.published),
        "" if measure.reach is None else f"{'≤' if measure.at_most else '≥'} {short(measure.reach)}",
        {None: "", True: "yes", False: "no"}[measure.met],
        measure.against,
        loads(measure),
    ]


def state(result: Result) -> str:
    """How an experiment stands, in words."""
    text = {MISSING: "not run", LATE: "took too long"}.get(result.state, result.state)
    if result.state not in (DONE, MISSING):
        text += f": {result.reason}"
    if result.runs and result.state != DONE:
        text += "; shown is an earlier run"
    return "; ".join(filter(None, [text, result.besides, *(elsewhere(result.about) if result.measures else ())]))


def forms(results: Iterable[Result]) -> str:
    """In which form the results are, in words."""
    of = [result.form for result in results if result.form]
    quick = "small data and few repetitions, for a look at everything; not for quoting."
    if not of:
        return "Nothing was run."
    if "full" not in of:
        return f"Quick form: {quick}"
    if "quick" not in of:
        return "Full form."
    return f"{of.count('full')} experiments in the full form, {of.count('quick')} in the quick form: {quick}"


def lacking(results: Iterable[Result]) -> str:
    """What there is beside these results that could be run, in words; empty where there is nothing."""
    experiments, suites = absent([result.planned for result in results])
    told = [", ".join(experiments)] if experiments else []
    if suites:
        told.append(f"all of {', '.join(suites)}")
    return f"Not in this report: {'; '.join(told)}." if told else ""


def reproduced(results: Iterable[Result]) -> tuple[int, int]:
    """How many measures reach what they should, and how many should."""
    met = [m.met for result in results for m in result.measures if m.met is not None]
    return sum(met), len(met)


def where(results: Sequence[Result]) -> dict[str, str]:
    """Machines, versions, commits and loads that the results are of."""
    of = [result for result in results if result.measures]
    versions = [
        ", ".join(f"{name} {number}" for name, number in result.about.get("versions", {}).items()) for result in of
    ]
    loads = [pair for result in of for m in result.measures for pair in m.load]
    found = {
        "Machine": _each(m.machine for result in of for m in result.measures),
        "Versions": _each(versions),
        "Commit": _each(str(result.about.get("commit")) for result in of),
        "Seed": _each(str(result.about.get("seed")) for result in of),
        "Time": _span([str(result.about.get("time")) for result in of]),
        "Load": f"up to {max(a for a, _ in loads):g} before an experiment, {max(b for _, b in loads):g} at its end"
        if loads
        else "",
    }
    return {name: text for name, text in found.items() if text}


def _each(texts: Iterable[str]) -> str:
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _span(times: Sequence[str]) -> str:
    return "" if not times else min(times) if min(times) == max(times) else f"{min(times)} to {max(times)}"


def remarks(result: Result) -> list[str]:
    """What a reader must know of an experiment beside its figures."""
    told = []
    if (text := state(result)) != DONE:
        told.append(f"{text[0].upper()}{text[1:]}.")
    if result.form == "quick":
        told.append("Quick form: not for quoting.")
    of, found = len(result.measures), [sure(m) for m in result.measures]
    if few := sum(not one.known for one in found):
        told.append(f"{few} of {of} measures have fewer than {ENOUGH} repetitions and so no interval.")
    if within := sum(one.within for one in found):
        told.append(f"{within} of {of} measures have the interval within one run: runs may differ more.")
    if lost := sum(len(m.known) < len(m.runs) for m in result.measures):
        told.append(f"{lost} of {of} measures did not come about in each run; those runs are not counted.")
    if bounds := sum(amount(m).startswith("≥") for m in result.measures):
        told.append(f"{bounds} of {of} measures are lower bounds, marked by ≥.")
    return told


def to_markdown(title: str, results: Sequence[Result], pictures: Mapping[str, Sequence[tuple[str, str, str]]]) -> str:
    """The report as Markdown; ``pictures``: by experiment the path, title and note of each."""
    lines = [f"# {_cell(title)}", "", _cell(forms(results)), ""]
    if beside := lacking(results):
        lines += [_cell(beside), ""]
    lines += [f"- {name}: {_cell(text)}" for name, text in where(results).items()]
    lines += ["", "| experiment | state | form | seconds | measures | reached |", "|---|---|---|---:|---:|---:|"]
    for result in results:
        met, asked = reproduced([result])
        reached = f"{met} of {asked}" if asked else ""
        row = (result.planned.key, state(result), result.form, f"{result.seconds:.0f}", len(result.measures), reached)
        lines.append("| " + " | ".join(_cell(str(cell)) for cell in row) + " |")
    for result in results:
        experiment = result.planned.experiment
        about = _cell(experiment.about)
        lines += ["", f"## {_cell(experiment.title)}", "", f"`{experiment.key}`. {about}".rstrip(), ""]
        lines += [f"*{_cell(text)}*  " for text in remarks(result)]
        for path, name, note in pictures.get(experiment.key, ()):
            lines += ["", f"![{_cell(name)}]({path})", "", f"{_cell(name)}. {_cell(note)}"]
        if result.measures:
            lines += ["", "| " + " | ".join(COLUMNS) + " |"]
            lines.append("|" + "|".join("---:" if number else "---" for number in COLUMNS.values()) + "|")
            lines += ["| " + " | ".join(map(_cell, cells(m))) + " |" for m in result.measures]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Text that ends neither a cell, a row nor a line, nor is markup."""
    text = " ".join(text.split()).replace("\\", "\\\\")
    for sign in "|<>*_`[]":
        text = text.replace(sign, f"\\{sign}")
    return text


def to_csv(results: Iterable[Result]) -> str:
    """The measures of a suite as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV)
    for result in results:
        for m in result.measures:
            found = sure(m)
            about = result.about
            value = float(f"{m.value:.6g}")  # a median of two has the digits that halving made
            row: list[Any] = [result.planned.suite, result.planned.key, m.measure, value, m.unit]
            row += [_number(found.mean), _number(found.low), _number(found.high)]
            row += [len(m.known), " ".join(f"{v:g}" for v in m.runs)]
            row += [found.within, " ".join(f"{v:g}" for v in m.sample), m.lower_bound]
            row += [m.published, m.reach, m.at_most, m.met, m.against]
            row += [" ".join(f"{a:g}/{b:g}" for a, b in m.load), m.machine]
            row += [about.get("commit"), about.get("seed"), about.get("quick"), about.get("time")]
            writer.writerow(["" if cell is None else cell for cell in row])
    return file.getvalue()


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else ""

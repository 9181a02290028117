"""Results as tables: for the HTML page, in Markdown and as CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from riot_bench.harness.formatting import format_load, format_number
from riot_bench.harness.measure import Measure
from riot_bench.report.intervals import MIN_VALUES, interval_of
from riot_bench.report.plan import not_shown
from riot_bench.report.store import DONE, LATE, MISSING, Result, differing_origin
from riot_bench.report.summary import BUSY_LOAD

__all__ = [
    "COLUMNS",
    "count_reached",
    "describe_findings",
    "describe_forms",
    "describe_missing",
    "describe_origin",
    "describe_state",
    "format_finding",
    "format_interval",
    "format_value",
    "is_loaded",
    "list_findings",
    "list_remarks",
    "measure_cells",
    "to_csv",
    "to_markdown",
]

#: Columns of a table of measures, and whether they are numeric.
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
CSV_COLUMNS = (
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


def format_interval(measure: Measure) -> str:
    """Format the mean of a measure with its interval, or the number of values if they are too few.

    >>> format_interval(Measure("x", 2.0, "s", values=(1.0, 2.0, 3.0))), format_interval(Measure("x", 2.0, "s"))
    ('2 (0–4.48)', 'too few: 1')
    >>> format_interval(Measure("x", 2.0, "s", sample=(1.0, 2.0, 3.0)))
    '2 (0–4.48) within the run'
    """
    found = interval_of(measure)
    if not found.is_known:
        return f"too few: {found.of}"
    return (
        f"{format_number(found.mean)} ({format_number(found.low)}–{format_number(found.high)})"
        + " within the run" * found.within
    )


def format_value(measure: Measure) -> str:
    """Format the value, with ``≥`` for a lower bound.

    >>> format_value(Measure("x", 2.0, "s", lower_bound=True))
    '≥ 2'
    """
    return "≥ " * (measure.lower_bound and math.isfinite(measure.value)) + format_number(measure.value)


def measure_cells(measure: Measure) -> list[str]:
    """Return the cells of a row of :data:`COLUMNS`."""
    return [
        measure.measure,
        format_value(measure),
        format_interval(measure),
        str(len(measure.measured)),
        measure.unit,
        "" if measure.published is None else format_number(measure.published),
        "" if measure.reach is None else f"{'≤' if measure.at_most else '≥'} {format_number(measure.reach)}",
        {None: "", True: "yes", False: "missed"}[measure.met],
        measure.against,
        format_load(measure) + " ⚠ busy machine" * is_loaded(measure),
    ]


def describe_state(result: Result) -> str:
    """Describe the state of an experiment."""
    text = {MISSING: "not run", LATE: "took too long"}.get(result.state, result.state)
    if result.state not in (DONE, MISSING):
        text += f": {result.reason}"
    if result.runs and result.state != DONE:
        text += "; an earlier run is shown"
    return "; ".join(filter(None, [text, result.besides, *(differing_origin(result.about) if result.measures else ())]))


def describe_forms(results: Iterable[Result]) -> str:
    """Describe the forms of the results."""
    of = [result.form for result in results if result.form]
    quick = "small data and few repetitions, as an overview; not for quoting."
    if not of:
        return "No experiment was run."
    if "full" not in of:
        return f"Quick form: {quick}"
    if "quick" not in of:
        return "Full form."
    return f"{of.count('full')} experiments in the full form, {of.count('quick')} in the quick form: {quick}"


def describe_missing(results: Iterable[Result]) -> str:
    """Describe the experiments and suites that the results leave out; empty if there are none."""
    experiments, suites = not_shown([result.planned for result in results])
    parts = [", ".join(experiments)] if experiments else []
    if suites:
        parts.append(f"all of {', '.join(suites)}")
    return f"Not in this report: {'; '.join(parts)}." if parts else ""


def count_reached(results: Iterable[Result]) -> tuple[int, int]:
    """Count the measures that reach their target, and those that have one."""
    met = [m.met for result in results for m in result.measures if m.met is not None]
    return sum(met), len(met)


def list_findings(results: Iterable[Result]) -> list[tuple[str, Measure]]:
    """Return the measures that miss their target, each with the key of its experiment, the widest miss first."""
    missed = [(result.planned.key, m) for result in results for m in result.measures if m.met is False]
    return sorted(missed, key=lambda one: -_miss(one[1]))


def _miss(measure: Measure) -> float:
    """Return by which factor a measure misses its target; infinite where the target is 0."""
    value, reach = measure.value, measure.reach or 0.0
    low, high = (reach, value) if measure.at_most else (value, reach)
    return high / low if low > 0 and math.isfinite(value) else math.inf


def describe_findings(results: Sequence[Result]) -> str:
    """Describe how many targets are reached, what a target is, and how many figures are of a busy machine."""
    met, asked = count_reached(results)
    text = f"{met} of {asked} measures with a target reach it" if asked else "No measure has a target"
    text += ". A target (“reach”) is what the project wants of itself, not what a paper reports."
    loaded = sum(is_loaded(m) for result in results for m in result.measures)
    if loaded:
        text += f" {loaded} measures, marked by ⚠, were taken while other work loaded the machine; they mean little."
    return text


def format_finding(measure: Measure) -> str:
    """Format a measure that misses its target.

    >>> format_finding(Measure("x/lost", 3.0, "messages", reach=0, at_most=True))
    'x/lost: 3 messages instead of ≤ 0'
    """
    target = f"{'≤' if measure.at_most else '≥'} {format_number(measure.reach or 0.0)}"
    return f"{measure.measure}: {format_value(measure)} {measure.unit} instead of {target}"


def is_loaded(measure: Measure) -> bool:
    """Return whether the machine did other work before a run; the benchmark's own earlier work causes up to 2.

    >>> [is_loaded(Measure("x", 1.0, "s", load=((before, 9.0),))) for before in (2.0, 2.1)]
    [False, True]
    """
    return any(before > BUSY_LOAD for before, _ in measure.load)


def describe_origin(results: Sequence[Result]) -> dict[str, str]:
    """Return the machines, versions, commits, seeds, times and loads of the results."""
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


def list_remarks(result: Result) -> list[str]:
    """Return the remarks that a reader of an experiment's measures must know."""
    notes = []
    if (text := describe_state(result)) != DONE:
        notes.append(f"{text[0].upper()}{text[1:]}.")
    if result.form == "quick":
        notes.append("Quick form: not for quoting.")
    of, found = len(result.measures), [interval_of(m) for m in result.measures]
    if few := sum(not one.is_known for one in found):
        notes.append(f"{few} of {of} measures have fewer than {MIN_VALUES} repetitions and so no interval.")
    if within := sum(one.within for one in found):
        notes.append(f"{within} of {of} measures have an interval within one run: runs may differ more.")
    if lost := sum(len(m.measured) < len(m.runs) for m in result.measures):
        notes.append(f"{lost} of {of} measures have no value in some run; those runs are not counted.")
    if loaded := sum(map(is_loaded, result.measures)):
        notes.append(
            f"{loaded} of {of} measures, marked by ⚠, are of a busy machine: a load above {BUSY_LOAD:g} before the "
            "run, to which other work contributed. They mean little."
        )
    if bounds := sum(format_value(m).startswith("≥") for m in result.measures):
        notes.append(f"{bounds} of {of} measures are lower bounds, marked by ≥.")
    return notes


def to_markdown(title: str, results: Sequence[Result], charts: Mapping[str, Sequence[tuple[str, str, str]]]) -> str:
    """Format the report as Markdown; ``charts`` has the path, title and note of each chart by experiment."""
    lines = [f"# {_cell(title)}", "", _cell(describe_forms(results)), ""]
    if beside := describe_missing(results):
        lines += [_cell(beside), ""]
    lines += [f"- {name}: {_cell(text)}" for name, text in describe_origin(results).items()]
    findings = list_findings(results)
    lines += ["", "## Findings", "", _cell(describe_findings(results))]
    lines += ["", *(f"- {_cell(format_finding(m))} ({_cell(key)})" for key, m in findings)] if findings else []
    lines += ["", "| experiment | state | form | seconds | measures | reached |", "|---|---|---|---:|---:|---:|"]
    for result in results:
        met, asked = count_reached([result])
        reached = f"{met} of {asked}" if asked else ""
        row = (
            result.planned.key,
            describe_state(result),
            result.form,
            f"{result.seconds:.0f}",
            len(result.measures),
            reached,
        )
        lines.append("| " + " | ".join(_cell(str(cell)) for cell in row) + " |")
    for result in results:
        experiment = result.planned.experiment
        about = _cell(experiment.about)
        lines += ["", f"## {_cell(experiment.title)}", "", f"`{experiment.key}`. {about}".rstrip(), ""]
        lines += [f"*{_cell(text)}*  " for text in list_remarks(result)]
        for path, name, note in charts.get(experiment.key, ()):
            lines += ["", f"![{_cell(name)}]({path})", "", f"{_cell(name)}. {_cell(note)}"]
        if result.measures:
            lines += ["", "| " + " | ".join(COLUMNS) + " |"]
            lines.append("|" + "|".join("---:" if number else "---" for number in COLUMNS.values()) + "|")
            lines += ["| " + " | ".join(map(_cell, measure_cells(m))) + " |" for m in result.measures]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """Escape text for a table cell: one line, without markup."""
    text = " ".join(text.split()).replace("\\", "\\\\")
    for sign in "|<>*_`[]":
        text = text.replace(sign, f"\\{sign}")
    return text


def to_csv(results: Iterable[Result]) -> str:
    """Format the measures of a suite as CSV."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for result in results:
        for m in result.measures:
            found = interval_of(m)
            about = result.about
            value = float(f"{m.value:.6g}")  # the median of two values has more digits than they have
            row: list[Any] = [result.planned.suite, result.planned.key, m.measure, value, m.unit]
            row += [_number(found.mean), _number(found.low), _number(found.high)]
            row += [len(m.measured), " ".join(f"{v:g}" for v in m.runs)]
            row += [found.within, " ".join(f"{v:g}" for v in m.sample), m.lower_bound]
            row += [m.published, m.reach, m.at_most, m.met, m.against]
            row += [" ".join(f"{a:g}/{b:g}" for a, b in m.load), m.machine]
            row += [about.get("commit"), about.get("seed"), about.get("quick"), about.get("time")]
            writer.writerow(["" if cell is None else cell for cell in row])
    return file.getvalue()


def _number(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else ""

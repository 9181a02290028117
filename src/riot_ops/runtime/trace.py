"""What each step of a dataflow made of the records of a sample, by step and by record."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from riot_ops.core.display import (
    Markup,
    cell_html,
    cell_text,
    fields_text,
    html_display,
    html_table,
    operator_text,
    text_table,
    wrapped,
)
from riot_ops.core.errors import ConfigError, did_you_mean, escape_control, exception_text
from riot_ops.core.operator import FilterOperator, KeyedOperator, Operator, operator_clocks
from riot_ops.core.order import TIMER_OFFSET, is_ordinal, ordinals
from riot_ops.graph.graph import Graph

__all__ = ["Origin", "RecordTrace", "StepTrace", "Trace"]

#: Records that a terminal and a notebook show, records of a step for one message, and numbers of those without output.
TEXT_RECORDS, HTML_RECORDS, MAX_ROWS, MAX_MARKS = 10, 100, 6, 6
#: Width of the names of steps before what they made.
MAX_NAME = 16


class Origin(NamedTuple):
    """The message that a record comes from: its source, and its number there (``seq``)."""

    source: str
    seq: int


class Row(NamedTuple):
    """A record of a message, with its ordinals, which number the records of one message."""

    numbers: tuple[int | None, ...]
    fields: dict[str, Any]

    @property
    def is_timer(self) -> bool:
        """Whether it is timer output, or was made of it."""
        return bool(self.numbers) and self.numbers[0] is not None and self.numbers[0] < -(TIMER_OFFSET >> 1)

    def origins(self) -> list[tuple[int | None, ...]]:
        """Return the ordinals of the records that it may be made of, the nearest first."""
        return [self.numbers[:n] for n in range(len(self.numbers), 0 if self.is_timer else -1, -1)]


class Cell(NamedTuple):
    """What a step made of one message: ``kind`` is "record", "timer", "rejected" or "nothing"."""

    kind: str
    text: str


@dataclass(frozen=True, kw_only=True)
class StepTrace:
    """What one step made of the records of a sample.

    Attributes
    ----------
    id : str
    inputs : tuple of str
        The steps that it reads.
    operator : Operator or None
        Its task; None for a source.
    read, written, rejected : int
        Number of records that it read, emitted and rejected. One of which parts were rejected counts as accepted.
    at_end : int
        How many of the emitted records, the last ones, came at the end of the sample, where windows close.
    records : pyarrow.Table
        The emitted records.
    errors : pyarrow.Table
        The rejected records, with reasons.
    failure : Exception or None
        What it raised, which ended it.
    note : str
        What it dropped and held back, and why it emitted nothing.
    """

    id: str
    inputs: tuple[str, ...]
    operator: Operator | None
    read: int
    written: int
    rejected: int
    at_end: int
    records: pa.Table
    errors: pa.Table
    failure: Exception | None
    note: str
    #: The emitted and the rejected records of each message by their places; those at the end are not among them.
    emitted_from: Mapping[Origin, list[int]] = field(repr=False)
    rejected_from: Mapping[Origin, list[int]] = field(repr=False)

    @property
    def task(self) -> str:
        """The task with the parameters that are not the defaults."""
        return "source" if self.operator is None else operator_text(self.operator, 300)

    def rows(self, origin: Origin) -> list[dict[str, Any]]:
        """Return the records that it emitted for a message."""
        return self._rows(self.emitted_from.get(origin, ()))

    def end_rows(self) -> list[dict[str, Any]]:
        """Return the records that it emitted at the end of the sample."""
        return self._rows(range(self.records.num_rows - self.at_end, self.records.num_rows))

    def cells(self, origin: Origin, read: list[Row]) -> list[Cell]:
        """Return what it made of a message of which it ``read`` these records; empty if it did not get it."""
        made = self.numbered_rows(origin)
        found = [Cell("rejected", _error_text(error)) for error in self._error_rows(origin)[:MAX_ROWS]]
        counts = Counter(row.numbers for row in read)
        parents = {row.numbers: row.fields for row in read if counts[row.numbers] == 1}
        marked = max(_own(read), _own(made)) > 1
        before: Row | None = None
        for row in made[:MAX_ROWS]:
            text = _made_text(row, before, parents)
            kind = "timer" if row.is_timer else "record"
            found.append(Cell(kind, f"{_mark(row)} {text}" if marked and row.numbers and not row.is_timer else text))
            before = row
        if len(made) > MAX_ROWS:
            found.append(Cell("record", f"… {len(made) - MAX_ROWS:,} more records"))
        return found if self.rejected_from.get(origin) else found + self._left_out(read, made)

    def numbered_rows(self, origin: Origin) -> list[Row]:
        """Return the records that it emitted for a message, each with its ordinals."""
        taken = self.records.take(pa.array(self.emitted_from.get(origin, []), pa.int64()))
        names = ordinals(taken.column_names)
        return [Row(tuple(row[name] for name in names), _without_numbers(row)) for row in taken.to_pylist()]

    def _left_out(self, read: list[Row], made: list[Row]) -> list[Cell]:
        """Say what it made no record of, and why."""
        given = [row for row in read if not row.is_timer] or read
        kept = {numbers for row in made for numbers in row.origins()}
        silent = [row for row in given if row.numbers not in kept]
        if not silent:
            return []
        if len(silent) == len(given):
            return [Cell("nothing", self._nothing())]
        marks = [_mark(row) for row in silent[:MAX_MARKS]] + ["…"] * (len(silent) > MAX_MARKS)
        return [Cell("nothing", f"{', '.join(marks)} {self._nothing()}")]

    def __repr__(self) -> str:
        lines = [*wrapped(self.task, "  ", f"{self.id}: ")]
        lines.append(f"{self.read:,} read, {self.written:,} emitted, {self.rejected:,} rejected")
        lines += wrapped(self.note, "") if self.note else []
        shown = self._rows(range(min(self.records.num_rows, TEXT_RECORDS)))
        if shown:
            names = list(shown[0])
            lines += text_table([[_value(row, name) for name in names] for row in shown], names)
        if self.records.num_rows > len(shown):
            lines.append(f"… {self.records.num_rows - len(shown):,} more records")
        for error in self.errors.slice(0, MAX_ROWS).to_pylist():
            lines += wrapped(_error_text(error), "  ", f"rejected seq {error['seq']}: ")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        shown = self._rows(range(min(self.records.num_rows, HTML_RECORDS)))
        names = list(shown[0]) if shown else []
        parts = [
            f"{self.id}: {self.task}",
            f"{self.read:,} read, {self.written:,} emitted, {self.rejected:,} rejected",
            self.note,
            html_table([[_value(row, name) for name in names] for row in shown], names) if shown else "",
        ]
        if self.records.num_rows > len(shown):
            parts.append(f"… {self.records.num_rows - len(shown):,} more records")
        errors = self.errors.slice(0, HTML_RECORDS).to_pylist()
        if errors:
            rows = [
                [str(error["seq"]), error["reason"], error["message"] or "", error["raw"] or ""] for error in errors
            ]
            parts.append(html_table(rows, ["seq", "reason", "message", "record"], caption="rejected"))
        return html_display(*parts)

    def _rows(self, places: Any) -> list[dict[str, Any]]:
        found = self.records.take(pa.array(list(places), pa.int64())).to_pylist()
        return [_without_numbers(row) for row in found]

    def _error_rows(self, origin: Origin) -> list[dict[str, Any]]:
        places = self.rejected_from.get(origin, ())
        found: list[dict[str, Any]] = self.errors.take(pa.array(list(places), pa.int64())).to_pylist()
        return found

    def _nothing(self) -> str:
        """Say why it emitted nothing for a record that it has read and not rejected."""
        operator = self.operator
        if self.failure is not None:
            return "the step has failed"
        if isinstance(operator, FilterOperator) or getattr(operator, "category", "") == "Filter":
            return "filtered out"
        if getattr(operator, "pattern", "") == "Join":
            return "kept, no match so far"
        if operator is not None and operator_clocks(operator):
            return "held: its window is open"
        return "no output, kept in state" if isinstance(operator, KeyedOperator) else "no output"


@dataclass(frozen=True, kw_only=True)
class Trace(Mapping[str, StepTrace]):
    """What each step of a dataflow made of the records of a sample; :func:`riot_ops.show` returns it.

    As a mapping it has the :class:`StepTrace` of each source and task by its id. Its text, and in a notebook its HTML,
    show the steps with their counts, and record by record what each step made of it.

    Attributes
    ----------
    flow : Graph
    origins : list of (str, int)
        Source and number (``seq``) of each message of the sample.
    ended : bool
        Whether the sample has all records of the sources.

    Examples
    --------
    >>> import riot_ops as ro
    >>> trace = ro.show(ro.tasks.RangeFilter(bounds={"temp": (0, 40)}), [{"obs_type": "temp", "value": 99.0}])
    >>> trace["range_filter"].read, trace["range_filter"].written, trace["range_filter"].note
    (1, 0, 'filtered out 1')
    """

    flow: Graph
    steps: Mapping[str, StepTrace]
    origins: list[Origin]
    ended: bool

    def __getitem__(self, step: str) -> StepTrace:
        if step not in self.steps:
            raise KeyError(f"no step {step!r}; steps are {', '.join(self.steps)}{did_you_mean(step, self.steps)}")
        return self.steps[step]

    def __iter__(self) -> Iterator[str]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    def record(self, seq: int, source: str | None = None) -> RecordTrace:
        """Return what the steps made of one record.

        Parameters
        ----------
        seq : int
            Number of the record in its source.
        source : str, optional
            Id of the source; needed where there are several.

        Examples
        --------
        >>> import riot_ops as ro
        >>> flow = ro.Dataflow("warm")
        >>> _ = flow.source("readings", {"value": "double"}).filter("value > 20", id="warm").to("out")
        >>> ro.show(flow, [{"value": 21.5}, {"value": 19.0}]).record(1)
        readings 1
          readings  value=19.0
          warm      - filtered out
        """
        sources = [step.id for step in self.steps.values() if step.operator is None]
        if source is None and len(sources) > 1:
            raise ConfigError(f"record: source must be one of {', '.join(map(repr, sources))}, as there are several")
        origin = Origin(sources[0] if source is None else source, seq)
        if origin not in self.origins:
            numbers = [str(one.seq) for one in self.origins if one.source == origin.source]
            known = ", ".join([*numbers[:MAX_ROWS], *["…"] * (len(numbers) > MAX_ROWS)]) or "none"
            raise KeyError(f"no record {seq!r} of the source {origin.source!r} is in the sample; it has {known}")
        return RecordTrace(self, origin)

    def cells(self, origin: Origin) -> dict[str, list[Cell]]:
        """Return what each step that got a message made of it."""
        found = {}
        for step in self.steps.values():
            read = [row for above in step.inputs for row in self.steps[above].numbered_rows(origin)]
            if cells := step.cells(origin, read):
                found[step.id] = cells
        return found

    def __repr__(self) -> str:
        lines = [self._title()]
        rows = [[s.id, s.task, f"{s.read:,}", f"{s.written:,}", f"{s.rejected:,}"] for s in self.steps.values()]
        lines += ["", *text_table(rows, ["step", "", "read", "out", "rejected"], numbers=[2, 3, 4])]
        notes = [step for step in self.steps.values() if step.note]
        lines += [""] if notes else []
        for step in notes:
            lines += wrapped(step.note, "    ", f"  {escape_control(step.id)}: ")
        for origin in self.origins[:TEXT_RECORDS]:
            lines += ["", *self.record_lines(origin)]
        if left := self._left(TEXT_RECORDS):
            lines += ["", *wrapped(left, "")]
        lines += self._end_lines()
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        rows = [[s.id, s.task, f"{s.read:,}", f"{s.written:,}", f"{s.rejected:,}", s.note] for s in self.steps.values()]
        parts: list[str] = [
            self._title(),
            html_table(rows, ["step", "", "read", "out", "rejected", ""], numbers=[2, 3, 4]),
        ]
        names = list(self.steps)
        rows = [[f"{o.source} {o.seq}", *self._html_row(self.cells(o))] for o in self.origins[:HTML_RECORDS]]
        ends = {step.id: step.end_rows() for step in self.steps.values() if step.at_end}
        if ends:
            made = {id: _end_cells(found) for id, found in ends.items()}
            rows.append(["end of the sample", *self._html_row(made)])
        if rows:
            parts.append(html_table(rows, ["record", *names]))
        parts.append(self._left(HTML_RECORDS))
        return html_display(*parts)

    def _html_row(self, cells: Mapping[str, list[Cell]]) -> list[Markup]:
        return [_html_cell(cells.get(id, [])) for id in self.steps]

    def _title(self) -> str:
        counts: dict[str, int] = {}
        for origin in self.origins:
            counts[origin.source] = counts.get(origin.source, 0) + 1
        sample = " and ".join(f"{n:,} of {source}" for source, n in counts.items()) or "none"
        more = "" if self.ended else ", which may have more"
        return escape_control(f"dataflow {self.flow.name}, records: {sample}{more}")

    def _left(self, shown: int) -> str:
        left = len(self.origins) - shown
        return f"{left:,} more records: .record(seq) shows one, and [step] what a step made" if left > 0 else ""

    def record_lines(self, origin: Origin) -> list[str]:
        """Return the lines of text about one message."""
        lines = [escape_control(f"{origin.source} {origin.seq}")]
        for id, cells in self.cells(origin).items():
            lines += _step_lines(id, cells, self._name_width())
        return lines

    def _end_lines(self) -> list[str]:
        lines: list[str] = []
        for step in self.steps.values():
            if step.at_end:
                lines += _step_lines(step.id, _end_cells(step.end_rows()), self._name_width())
        return ["", "end of the sample", *lines] if lines else []

    def _name_width(self) -> int:
        return min(MAX_NAME, max(map(len, self.steps), default=0))


@dataclass(frozen=True, repr=False)
class RecordTrace:
    """What the steps of a dataflow made of one record; :meth:`Trace.record` returns it."""

    trace: Trace
    origin: Origin

    def __repr__(self) -> str:
        return "\n".join(self.trace.record_lines(self.origin))

    def _repr_html_(self) -> str:
        cells = self.trace.cells(self.origin)
        rows = [[id, _html_cell(found)] for id, found in cells.items()]
        return html_display(f"{self.origin.source} {self.origin.seq}", html_table(rows))


#: What stands before the text of a cell in a terminal.
_SIGNS = {"record": "", "timer": "time passed: ", "rejected": "REJECTED ", "nothing": "- "}
_CLASSES = {"record": "", "timer": "", "rejected": ' class="e"', "nothing": ' class="m"'}
_WORDS = {"record": "", "timer": "time passed: ", "rejected": "rejected: ", "nothing": ""}


def _step_lines(id: str, cells: list[Cell], width: int) -> list[str]:
    """Return the lines of what a step made of a message."""
    lines: list[str] = []
    indent = " " * (width + 4)
    for i, cell in enumerate(cells):
        first = f"  {id:{width}}  " if i == 0 else indent
        lines += wrapped(_SIGNS[cell.kind] + cell.text, indent + "  ", first)
    return lines


def _html_cell(cells: list[Cell]) -> Markup:
    return Markup(
        "".join(
            f"<div{_CLASSES[cell.kind]}>{cell_html(_WORDS[cell.kind] + cell.text)}</div>" for cell in cells
        ).replace(
            "] ",
            "]&nbsp;",  # a number and the first field of its record stay on one line
        )
    )


def _end_cells(rows: list[dict[str, Any]]) -> list[Cell]:
    found = [Cell("record", fields_text(row)) for row in rows[:MAX_ROWS]]
    if len(rows) > MAX_ROWS:
        found.append(Cell("record", f"… {len(rows) - MAX_ROWS:,} more records"))
    return found


def _own(rows: list[Row]) -> int:
    return sum(not row.is_timer for row in rows)


def _mark(row: Row) -> str:
    return f"[{'.'.join(map(str, row.numbers))}]"


def _without_numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "seq" and not is_ordinal(name)}


def _made_text(row: Row, before: Row | None, parents: Mapping[tuple[int | None, ...], dict[str, Any]]) -> str:
    """Show a record by what differs: from the record that it was made of, or the one before it."""
    if row.numbers in parents:
        return _changes(parents[row.numbers], row.fields)
    if before is not None and before.is_timer == row.is_timer and before.fields.keys() == row.fields.keys():
        return _changes(before.fields, row.fields, "the same again")
    parent = next((parents[numbers] for numbers in row.origins() if numbers in parents), {})
    return fields_text({k: v for k, v in row.fields.items() if k not in parent or not _same(parent[k], v)})


def _changes(before: Mapping[str, Any], after: Mapping[str, Any], unchanged: str = "passes unchanged") -> str:
    """Show the fields of a record that differ from those of another, or all if some are gone."""
    if not before.keys() <= after.keys():
        return fields_text(after)
    changed = {name: value for name, value in after.items() if name not in before or not _same(before[name], value)}
    return fields_text(changed) if changed else unchanged


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)


def _error_text(error: Mapping[str, Any]) -> str:
    shown = f"{error['reason']}: {error['message']}" if error["message"] else str(error["reason"])
    return escape_control(shown)


def _value(row: Mapping[str, Any], name: str) -> str:
    return cell_text(row[name], 40)


def failure_text(error: Exception) -> str:
    """Return what a step raised, on one line."""
    return escape_control(f"{type(error).__name__}: {exception_text(error)}")

"""Functions of texts, and parts of times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import excerpt
from riot_ops.core.schema import EARLIEST, LATEST
from riot_ops.kernels.arrays.arrow import numpy_values
from riot_ops.kernels.expressions.binding import Binder, Binders, Bound, FieldReader, Run, replaced
from riot_ops.kernels.expressions.columns import BOOL, NULL, UNITS, Column, Kind, integer, marked, truth_of, valid_of
from riot_ops.kernels.expressions.syntax import Node
from riot_ops.kernels.stats.local_calendar import local_calendar
from riot_ops.kernels.text.strings import contains

__all__ = ["TextBinder"]

#: By function of a time, the seconds of a part, how many parts are a cycle, and the part of the epoch, a Thursday.
CYCLES = {"hour": (3_600, 24, 0), "minute": (60, 60, 0), "weekday": (86_400, 7, 3)}
CALENDAR = ("day", "month", "year")


class TextBinder(Binder):
    """Binds functions of texts and of times."""

    # -- functions of texts and times --------------------------------------------------------------

    def _text(self, node: Node) -> tuple[Kind, Callable[[FieldReader], tuple[Any, Any]]]:
        """Return the kind of an argument, and a function that returns its texts and its errors."""
        part = self.bind(node.args[0])
        if part.kind == NULL:
            return Kind("text"), lambda rows: (pa.nulls(rows.rows.num_rows, pa.string()), part.run(rows).bad)
        if part.kind.name != "text":
            self._refuse(node, f"{node.op} takes a text, not a {part.kind.word}")

        def run(rows: FieldReader) -> tuple[Any, Any]:
            data, _, bad = part.run(rows)
            return data, bad

        return part.kind, run

    def _text_function(self, node: Node) -> tuple[Kind, Run]:
        kind, part = self._text(node)
        function = {"lower": pc.utf8_lower, "upper": pc.utf8_upper, "strip": pc.utf8_trim_whitespace}[node.op]

        def run(rows: FieldReader) -> Column:
            texts, bad = part(rows)
            return Column(function(texts), None, bad)

        return kind, run

    def _length(self, node: Node) -> tuple[Kind, Run]:
        _, part = self._text(node)

        def run(rows: FieldReader) -> Column:
            texts, bad = part(rows)
            lengths = pc.utf8_length(texts).cast(pa.int64())
            valid = valid_of(Column(lengths))
            if isinstance(lengths, pa.Scalar):
                return Column(np.int64(lengths.as_py() or 0), valid, bad)
            return Column(numpy_values(lengths.fill_null(0)), valid, bad)

        return integer(0, 2**31 - 1), run

    def _searched(self, node: Node) -> Callable[[FieldReader], tuple[Any, Any]]:
        """Return a function that returns the texts to search and their errors; bytes need not be valid text."""
        name: str = node.args[0].value
        is_field = node.args[0].op == "field" and name in self.schema.names
        if not is_field or node.op == "matches" or self.schema.field(name).type not in (pa.binary(), pa.large_binary()):
            return self._text(node)[1]
        return lambda rows: (rows.rows.column(name), None)

    def _search(self, node: Node) -> tuple[Kind, Run]:
        part = self._searched(node)
        wanted = node.args[1].value
        function: Callable[[Any], Any] = {
            "contains": lambda texts: contains(texts, wanted),
            "startswith": lambda texts: pc.call_function("starts_with", [texts], pc.MatchSubstringOptions(wanted)),
            "endswith": lambda texts: pc.call_function("ends_with", [texts], pc.MatchSubstringOptions(wanted)),
            "matches": lambda texts: pc.match_substring_regex(texts, wanted),
        }[node.op]

        def run(rows: FieldReader) -> Column:
            texts, bad = part(rows)
            if isinstance(texts, pa.Scalar):
                texts = pa.array([texts.as_py()], texts.type)
                found = truth_of(function(texts), texts)
                return Column(found.data[0], found.valid, bad)
            return truth_of(function(texts), texts)._replace(bad=bad)

        return BOOL, run

    def _moment(self, node: Node) -> Bound:
        part = self.bind(node.args[0])
        if part.kind == NULL:
            part = Bound(part.node, Kind("time", unit="us"), self._converted(part, Kind("time", unit="us")))
        if part.kind.name != "time":
            self._refuse(node, f"{node.op} takes a time, not a {part.kind.word}")
        return part

    def _clock(self, node: Node) -> tuple[Kind, Run]:
        part = self._moment(node)
        seconds, parts, first = CYCLES[node.op]
        length = seconds * UNITS[part.kind.unit]
        return integer(0, parts - 1), lambda rows: replaced(
            part.run(rows), lambda data: (data // length + first) % parts
        )

    def _calendar(self, node: Node) -> tuple[Kind, Run]:
        part = self._moment(node)
        function, dtype = getattr(pc, node.op), pa.timestamp(part.kind.unit)

        def run(rows: FieldReader) -> Column:
            data, valid, bad = part.run(rows)
            found = np.asarray(function(pa.array(np.atleast_1d(data)).view(dtype))).astype(np.int64, copy=False)
            return Column(found if np.ndim(data) else found[0], valid, bad)

        return integer(0, 9999), run

    def _floor_time(self, node: Node) -> tuple[Kind, Run]:
        part = self._moment(node)
        if isinstance(node.value, tuple):
            return self._floor_calendar(node, part)
        length, kind = node.value // timedelta(microseconds=1), part.kind
        if length * UNITS[kind.unit] % UNITS["us"]:  # shorter than the unit
            kind = Kind("time", unit="us")
        every, run_part = length * UNITS[kind.unit] // UNITS["us"], self._converted(part, kind)
        if every >= 2**63:
            self._refuse(node, f"intervals of nanoseconds are shorter than 292 years, not {node.value}")
        first = EARLIEST // UNITS["us"] * UNITS[kind.unit]
        code = self._error("out_of_range", f"{excerpt(node.text, 100)} is before the year 1")

        def run(rows: FieldReader) -> Column:
            data, valid, bad = run_part(rows)
            found = data // every * every
            wrong = found > data if kind.unit == "ns" else found < first  # 64 bits of nanoseconds end before
            return Column(found, valid, marked(bad, wrong if valid is None else wrong & valid, code))

        return kind, run

    def _floor_calendar(self, node: Node, part: Bound) -> tuple[Kind, Run]:
        """Bind the start of a unit of local time, in microseconds."""
        calendar, kind = local_calendar(*node.value), Kind("time", unit="us")
        finer = part.kind.unit == "ns"
        run_part = part.run if finer else self._converted(part, kind)
        code = self._error("out_of_range", f"{excerpt(node.text, 100)} is not in the years 1 to 9999")

        def run(rows: FieldReader) -> Column:
            data, valid, bad = run_part(rows)
            times = np.atleast_1d(data // 1000 if finer else data)
            if valid is not None:
                times = np.where(valid, times, 0)
            wrong = (times < EARLIEST) | (times > LATEST)
            found = calendar.starts(np.where(wrong, 0, times))
            wrong |= found < EARLIEST
            if not np.ndim(data):
                found, wrong = found[0], wrong[0]
            return Column(found, valid, marked(bad, wrong if valid is None else wrong & valid, code))

        return kind, run

    def _time_of_day(self, node: Node) -> tuple[Kind, Run]:
        part = self._moment(node)
        day = 86_400 * UNITS[part.kind.unit]
        return Kind("duration", unit=part.kind.unit), lambda rows: replaced(part.run(rows), lambda data: data % day)

    binders: ClassVar[Binders] = {
        **dict.fromkeys(("lower", "upper", "strip"), _text_function),
        "len": _length,
        **dict.fromkeys(("startswith", "endswith", "contains", "matches"), _search),
        **dict.fromkeys(CYCLES, _clock),
        **dict.fromkeys(CALENDAR, _calendar),
        "floor_time": _floor_time,
        "time_of_day": _time_of_day,
    }

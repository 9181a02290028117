"""Functions of texts, and parts of times."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.kernels.expressions.binding import Binder, Binders, Bound, FieldReader, Run
from riot_ops.kernels.expressions.columns import BOOL, NULL, Column, Kind, integer, truth_of, valid_of
from riot_ops.kernels.expressions.syntax import Node
from riot_ops.kernels.text.strings import contains

__all__ = ["CLOCK", "TextBinder"]

#: By function of a time, that of Arrow.
CLOCK = {
    "hour": "hour",
    "minute": "minute",
    "day": "day",
    "weekday": "day_of_week",
    "month": "month",
    "year": "year",
}


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
            return Column(lengths.fill_null(0).to_numpy(), valid, bad)

        return integer(0, 2**31 - 1), run

    def _search(self, node: Node) -> tuple[Kind, Run]:
        _, part = self._text(node)
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

    def _clock(self, node: Node) -> tuple[Kind, Run]:
        part = self.bind(node.args[0])
        if part.kind == NULL:
            part = Bound(part.node, Kind("time", unit="us"), self._converted(part, Kind("time", unit="us")))
        if part.kind.name != "time":
            self._refuse(node, f"{node.op} takes a time, not a {part.kind.word}")
        function, dtype = getattr(pc, CLOCK[node.op]), pa.timestamp(part.kind.unit)

        def run(rows: FieldReader) -> Column:
            data, valid, bad = part.run(rows)
            found = np.asarray(function(pa.array(np.atleast_1d(data)).view(dtype))).astype(np.int64, copy=False)
            return Column(found if np.ndim(data) else found[0], valid, bad)

        return integer(0, 9999), run

    binders: ClassVar[Binders] = {
        **dict.fromkeys(("lower", "upper", "strip"), _text_function),
        "len": _length,
        **dict.fromkeys(("startswith", "endswith", "contains", "matches"), _search),
        **dict.fromkeys(CLOCK, _clock),
    }

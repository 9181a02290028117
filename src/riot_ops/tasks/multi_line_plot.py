"""Draw gathered results as line charts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.charts import Line, png_chart, svg_chart
from riot_ops.dead_letters import DeadLetters
from riot_ops.errors import ConfigError
from riot_ops.kernels.arrow import float_column
from riot_ops.kernels.timestamps import microseconds
from riot_ops.parameters import Count
from riot_ops.schema import TIMESTAMP
from riot_ops.task import Case, Requirement, StatelessTask, register

__all__ = ["MultiLinePlot", "file_name"]

NAME, DATA = "name", "data"
#: What is kept of a set besides its groups.
CARRIED = ("seq", "sub", "event_time", "batch_id")


@register
@dataclass(frozen=True, kw_only=True)
class MultiLinePlot(StatelessTask):
    """Draw a line chart of each gathered set of results, with one line per kind of result.

    ``x`` is the time since the set's first result (ms), ``y`` the value.

    Parameters
    ----------
    groups : tuple of str, default ("sensor_id", "obs_type")
        Fields whose values are the title of a chart.
    line : str or None, default "analytic"
        List field that says of each result to which line it belongs; None: one line.
    value, times : str, default "value" and "times"
        List fields with the numbers and when they were, as :class:`Accumulator` makes them.
    format : "svg" or "png", default "svg"
        The form of a picture; ``png`` needs matplotlib (``pip install 'riot_ops[plot]'``).
    width, height : int, at least 200 and 150, default 800 and 600
        Size of a chart (pixels).

    Shapes and rates
    ----------------
    1:1, a chart per record; O(points) time, no state. The output has the groups and, of the input,
    ``seq``, ``sub``, ``event_time`` and ``batch_id``; then ``name`` (the groups and ``batch_id`` with ~
    between them, and % before the code of what is no good in the name of a file) and ``data``
    (binary, the picture). The same record makes the same bytes.

    Missing values
    --------------
    A null or NaN, or an infinite value, is a gap in its line. A point without time is left out. A set
    without points, or with null in place of a list, is a chart without lines.

    Errors
    ------
    ``unequal_lists`` (a set whose lists differ in length).

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task PLT.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> plot = MultiLinePlot(groups=("sensor_id",), line=None).session()
    >>> times = [datetime(2026, 1, 1, 12, m, tzinfo=UTC) for m in range(3)]
    >>> chart = plot.push({"sensor_id": "a/b", "batch_id": 0, "times": times, "value": [1.0, 3.0, 2.0]})[0]
    >>> chart["name"], chart["data"][:4]
    ('a%2Fb~0.svg', b'<svg')
    """

    code: ClassVar[str] = "PLT"
    category: ClassVar[str] = "Visualization"

    groups: tuple[str, ...] = ("sensor_id", "obs_type")
    line: str | None = "analytic"
    value: str = "value"
    times: str = "times"
    format: Literal["svg", "png"] = "svg"
    width: Count = 800
    height: Count = 600

    def validate(self) -> None:
        if self.width < 200 or self.height < 150:
            raise ConfigError(f"a chart needs at least 200 by 150 pixels, got width={self.width}, height={self.height}")

    def requires(self) -> Mapping[str, Requirement]:
        return dict.fromkeys([*self.groups, *self._lists()], "any")

    def _lists(self) -> list[str]:
        return [self.times, self.value, *([self.line] if self.line else [])]

    def writes(self) -> None:
        return None

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name in self._lists():
            kind = schema.field(name).type
            if not (_is_list(kind) or pa.types.is_null(kind)):
                raise ConfigError(
                    f"{self.name()} needs a list in the field {name!r}, as an Accumulator makes; its input has {kind}"
                )
        for name, fits, what in (
            (self.times, pa.types.is_timestamp, "timestamps"),
            (self.value, _is_number, "numbers"),
        ):
            kind = schema.field(name).type
            if _is_list(kind) and not (fits(kind.value_type) or pa.types.is_null(kind.value_type)):
                raise ConfigError(f"{self.name()} needs {what} in the lists of {name!r}, its input has {kind}")
        return pa.schema([*(schema.field(n) for n in self._kept(schema)), (NAME, pa.string()), (DATA, pa.binary())])

    def _kept(self, schema: pa.Schema) -> list[str]:
        kept = {*CARRIED, *self.groups} - {NAME, DATA}
        return [name for name in schema.names if name in kept]

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        schema = self.output_schema(batch.schema)
        columns = [_as_list(batch.column(name)) for name in self._lists()]
        lengths = [np.diff(c.offsets.to_numpy()) for c in columns]
        bad = np.any([n != lengths[0] for n in lengths], axis=0)
        if bad.any():
            texts = [", ".join(str(n[i]) for n in lengths) for i in np.flatnonzero(bad)]
            dead.reject(
                batch, bad, "unequal_lists", [f"the lists {', '.join(self._lists())} have {t} values" for t in texts]
            )
        good = np.flatnonzero(~bad)
        title = [batch.column(name).cast(pa.string()).to_pylist() for name in self.groups]
        parts = [*title, *([batch.column("batch_id").to_pylist()] if "batch_id" in batch.schema.names else [])]
        draw = svg_chart if self.format == "svg" else png_chart
        names, charts = [], []
        for i in good.tolist():
            names.append(file_name([p[i] for p in parts], f".{self.format}"))
            caption = " ".join(_text(t[i]) for t in title)
            charts.append(draw(caption, self._chart([c[i].values for c in columns]), self.width, self.height))
        kept = batch.select(self._kept(batch.schema)).take(pa.array(good))
        made = [pa.array(names, pa.string()), pa.array(charts, pa.binary())]
        return pa.RecordBatch.from_arrays([*kept.columns, *made], schema=schema)

    def _chart(self, lists: list[pa.Array]) -> list[Line]:
        if lists[0] is None or not len(lists[0]):
            return []
        times, present = microseconds(lists[0])
        values, _ = float_column(lists[1].cast(pa.float64()))
        first = times[present].min() if present.any() else 0
        labels = [self.value] * len(values) if self.line is None else map(_text, lists[2].cast(pa.string()).to_pylist())
        members: dict[str, list[int]] = {}
        for i, label in enumerate(labels):
            members.setdefault(label, []).append(i)
        lines = []
        for label, places in members.items():
            shown = np.array(places)[present[places]]
            y: npt.NDArray[np.float64] = np.where(np.isfinite(values[shown]), values[shown], np.nan)
            lines.append(Line(label, (times[shown] - first) / 1000, y))
        return lines

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": pa.array([3, 5, 7, 8, 9], pa.int64()),
                "sensor_id": ["a", "<ü> & 漢字", None, "a/../b", "s"],
                "obs_type": ["t", "t", "$x_1$", "", "t"],
                "batch_id": [0, 0, 1, 1, 2],
                "times": pa.array(
                    [[0, 1_000_000, 1_500_000, None], [5], [], None, [1, 2]], pa.list_(TIMESTAMP)
                ),
                "analytic": [["AVG", "SLR", "AVG", "AVG"], ["_x"], [], None, ["AVG"]],
                "value": [[1.0, None, float("nan"), 4.0], [float("inf")], [], None, [1e308, -1e308]],
            }
        )  # fmt: skip
        yield Case(cls(), batch)
        yield Case(cls(groups=("obs_type",), line=None, width=300, height=200), batch, "one line")


def _text(value: str | None) -> str:
    return "null" if value is None else value


def file_name(parts: Iterable[object], suffix: str = "") -> str:
    """A name for a file out of parts, another one for other parts.

    >>> file_name(["a/b", "ü~", None, 7], ".svg")
    'a%2Fb~ü%7E~null~7.svg'
    """
    texts = ("null" if part is None else str(part) for part in parts)
    safe = (re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|%~]', lambda m: f"%{ord(m[0]):02X}", text) for text in texts)
    return "~".join(safe) + suffix


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _as_list(column: pa.Array) -> pa.Array:
    """The column with its nulls as empty lists, from offset 0."""
    if pa.types.is_null(column.type):
        column = column.cast(pa.list_(pa.null()))
    return pa.concat_arrays([column])

"""Line charts of collected results."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.kernels.arrays.arrow import float_column
from riot_ops.kernels.arrays.timestamps import microseconds
from riot_ops.task import Case, Requirement, StatelessTask, register
from riot_ops.tasks.plot.charts import Line, png_chart, svg_chart

__all__ = ["PlotLines", "file_name"]

NAME, DATA = "name", "data"
#: Width or height of a picture.
Pixels = Annotated[int, msgspec.Meta(ge=1, le=16_384)]
PREDICTED = pa.list_(pa.float64())

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


class Points(NamedTuple):
    """The values of all sets of a batch; row i has the predictions ``ahead[ahead_from[i]:ahead_from[i + 1]]``."""

    times: I64
    present: npt.NDArray[np.bool_]
    values: F64
    labels: list[str]
    known: npt.NDArray[np.bool_]
    ahead_from: I64
    ahead: F64


@register
@dataclass(frozen=True, kw_only=True)
class PlotLines(StatelessTask):
    """Draw a line chart of each collected set of results, with one line per type of result.

    ``x`` is the time since the first result of the set, ``y`` the value. The predictions of a result, in
    the field ``predictions``, are drawn as a separate faint line that begins one step after it; a step is the
    median of the times between successive results.

    Parameters
    ----------
    groups : tuple of str, default ("sensor_id", "obs_type")
        Fields whose values form the title of a chart.
    series : str or None, default "analytic"
        List field with the line that each result belongs to; None: one line.
    value, time : str, default "value" and "times"
        List fields with the numbers and their times, as made by :class:`Collect`.
    predictions : str or None, default None
        List field with a list of predictions, or null, for each result; None: no predictions.
    value_unit : str or None, default None
        Text field with the unit of the values, which labels their axis; None: no unit.
    format : "svg" or "png", default "svg"
        Format of the charts; ``png`` needs matplotlib (``pip install 'riot-ops[plot]'``).
    width, height : int, at least 200 and 150, default 800 and 600
        Size of a chart (pixels).

    Shapes and rates
    ----------------
    1:1, a chart per record; O(points) time, no state. The output has the groups and, if the input has
    them, ``seq``, ``ordinal``, ``event_time`` and ``batch_id``; then ``name`` (the groups and ``batch_id``,
    joined by ~ and percent-encoded for file names) and ``data`` (binary, the chart). The same record
    makes the same bytes. Values are drawn as float64.

    Missing values
    --------------
    A null, NaN or infinite value is a gap in its line. A point without time is omitted. A set without
    points, or with null in place of a list, makes a chart without lines.

    Errors
    ------
    ``unequal_lists``: the lists of the set differ in length.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task PLT.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> plot = PlotLines(groups=("sensor_id",), series=None).session()
    >>> times = [datetime(2026, 1, 1, 12, m, tzinfo=UTC) for m in range(3)]
    >>> chart = plot.push({"sensor_id": "a/b", "batch_id": 0, "times": times, "value": [1.0, 3.0, 2.0]})[0]
    >>> chart["name"], chart["data"][:4]
    ('a%2Fb~0.svg', b'<svg')
    """

    code: ClassVar[str] = "PLT"
    category: ClassVar[str] = "Visualization"
    reentrant: ClassVar[bool] = False  # matplotlib is not thread-safe

    groups: Names = ("sensor_id", "obs_type")
    series: str | None = "analytic"
    value: str = "value"
    time: str = "times"
    predictions: str | None = None
    value_unit: str | None = None
    format: Literal["svg", "png"] = "svg"
    width: Pixels = 800
    height: Pixels = 600

    def validate(self) -> None:
        if self.width < 200 or self.height < 150:
            raise ConfigError(f"a chart needs at least 200 by 150 pixels, got width={self.width}, height={self.height}")

    def requires(self) -> Mapping[str, Requirement]:
        unit: dict[str, Requirement] = {} if self.value_unit is None else {self.value_unit: "text"}
        return {**dict.fromkeys([*self.groups, *self._lists()], "any"), **unit}

    def _lists(self) -> list[str]:
        return [name for name in (self.time, self.value, self.series, self.predictions) if name is not None]

    def writes(self) -> frozenset[str]:
        return frozenset({NAME, DATA})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        for name in self._lists():
            dtype = schema.field(name).type
            if not (_is_list(dtype) or pa.types.is_null(dtype)):
                raise ConfigError(
                    f"{self.name()} needs a list in the field {name!r}, as made by Collect; its input has {dtype}"
                )
        for name, fits, what in (
            (self.time, pa.types.is_timestamp, "timestamps"),
            (self.value, _is_number, "numbers"),
        ):
            dtype = schema.field(name).type
            if _is_list(dtype) and not (fits(dtype.value_type) or pa.types.is_null(dtype.value_type)):
                raise ConfigError(f"{self.name()} needs {what} in the lists of {name!r}, its input has {dtype}")
        if self.predictions is not None and not _of_lists(schema.field(self.predictions).type):
            raise ConfigError(
                f"{self.name()} needs lists of numbers in the lists of {self.predictions!r}, "
                f"its input has {schema.field(self.predictions).type}"
            )
        return pa.schema(
            [*(schema.field(n) for n in self._kept_fields(schema)), (NAME, pa.string()), (DATA, pa.binary())]
        )

    def _kept_fields(self, schema: pa.Schema) -> list[str]:
        kept = {*carried_fields(schema.names), "batch_id", *self.groups} - {NAME, DATA}
        return [name for name in schema.names if name in kept]

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        schema = self.output_schema(batch.schema)
        columns = [_as_list(batch.column(name)) for name in self._lists()]
        lengths = [np.diff(c.offsets.to_numpy()) for c in columns]
        bad = np.any([n != lengths[0] for n in lengths], axis=0)
        if bad.any():
            texts = [", ".join(str(n[i]) for n in lengths) for i in np.flatnonzero(bad)]
            errors.reject(
                batch, bad, "unequal_lists", [f"the lists {', '.join(self._lists())} have {t} values" for t in texts]
            )
            keep = pa.array(~bad)
            batch, columns = batch.filter(keep), [_as_list(column.filter(keep)) for column in columns]
        title = [batch.column(name).cast(pa.string()).to_pylist() for name in self.groups]
        parts = [*title, *([batch.column("batch_id").to_pylist()] if "batch_id" in batch.schema.names else [])]
        units = (
            [None] * batch.num_rows
            if self.value_unit is None
            else batch.column(self.value_unit).cast(pa.string()).to_pylist()
        )
        draw = svg_chart if self.format == "svg" else png_chart
        points, edges = self._points([c.values for c in columns]), columns[0].offsets.to_pylist()
        names, charts = [], []
        for i in range(batch.num_rows):
            names.append(file_name([p[i] for p in parts], f".{self.format}"))
            caption = " ".join(_text(t[i]) for t in title)
            lines, start = _chart(points, edges[i], edges[i + 1])
            charts.append(draw(caption, lines, self.width, self.height, units[i] or "", start))
        kept = batch.select(self._kept_fields(batch.schema))
        added = [pa.array(names, pa.string()), pa.array(charts, pa.binary())]
        return pa.RecordBatch.from_arrays([*kept.columns, *added], schema=schema)

    def _points(self, lists: list[pa.Array]) -> Points:
        """Return the values of all sets, one set after the other."""
        times, present = microseconds(lists[0])
        values, _ = float_column(lists[1].cast(pa.float64(), safe=False))
        n = len(values)
        labels = [self.value] * n if self.series is None else list(map(_text, lists[2].cast(pa.string()).to_pylist()))
        ahead = pa.concat_arrays([pa.nulls(n, PREDICTED) if self.predictions is None else lists[-1].cast(PREDICTED)])
        predicted, _ = float_column(ahead.values)
        return Points(
            times,
            present,
            np.where(np.isfinite(values), values, np.nan),
            labels,
            ahead.is_valid().to_numpy(zero_copy_only=False),
            ahead.offsets.to_numpy(),
            np.where(np.isfinite(predicted), predicted, np.nan),
        )

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
        yield Case(cls(groups=("obs_type",), series=None, width=300, height=200), batch, "one line")
        fans = [[None, [1.0, None, float("inf")], [], [2.0, 3.0]], [[1.0]], [], None, [None]]
        more = batch.append_column("predictions", pa.array(fans, pa.list_(PREDICTED)))
        more = more.append_column("unit", pa.array(["°C", None, "<", "", "m/s"]))
        yield Case(cls(predictions="predictions", value_unit="unit"), more.slice(0, 4), "ahead")


def _chart(points: Points, start: int, end: int) -> tuple[list[Line], str]:
    """Return the lines of the set between two offsets, and the time at which it begins."""
    shown = start + np.flatnonzero(points.present[start:end])
    first = int(points.times[shown].min()) if shown.size else 0
    members: dict[str, list[int]] = {}
    for i in range(start, end):
        members.setdefault(points.labels[i], []).append(i)
    lines = []
    for label, places in members.items():
        rows = np.array(places)[points.present[places]]
        x, y = (points.times[rows] - first) / 1000, points.values[rows]
        ahead = points.known[rows]
        if ahead.any():
            step = float(np.median(np.diff(np.sort(x)))) if x.size > 1 else 0.0
            lines.append(Line(label, *_fans(points, rows[ahead], x[ahead], step), faint=True))
        if not ahead.any() or not np.isnan(y).all():
            lines.append(Line(label, x, y))
    return lines, _time_text(first) if shown.size else ""


def _fans(points: Points, rows: I64, x: F64, step: float) -> tuple[F64, F64]:
    """Return the predictions of the results at x, one step apart, with a gap after the last prediction of each."""
    starts, ends = points.ahead_from[rows], points.ahead_from[rows + 1]
    lengths = ends - starts + 1  # including the gap
    first = np.cumsum(lengths) - lengths
    place = np.arange(int(lengths.sum())) - np.repeat(first, lengths)
    gap = place == np.repeat(lengths - 1, lengths)
    y = np.full(place.size, np.nan)
    y[~gap] = points.ahead[(np.repeat(starts, lengths) + place)[~gap]]
    return np.repeat(x, lengths) + step * (place + 1), y


def _time_text(microseconds: int) -> str:
    """Format a time as text.

    >>> _time_text(1_500_000), _time_text(-1_000_000)
    ('1970-01-01 00:00:01.500 UTC', '1969-12-31 23:59:59 UTC')
    """
    text = str(np.datetime64(microseconds, "us").astype("datetime64[ms]")).removesuffix(".000")
    return f"{text.replace('T', ' ')} UTC"


def _of_lists(dtype: pa.DataType) -> bool:
    """Whether a type is that of lists of lists of numbers, or null at any level."""
    for _ in range(2):
        if pa.types.is_null(dtype):
            return True
        if not _is_list(dtype):
            return False
        dtype = dtype.value_type
    return _is_number(dtype) or pa.types.is_null(dtype)


def _text(value: str | None) -> str:
    return "null" if value is None else value


def file_name(parts: Iterable[object], suffix: str = "") -> str:
    """Make a file name from parts; different parts make different names.

    >>> file_name(["a/b", "ü~", None, 7], ".svg")
    'a%2Fb~ü%7E~null~7.svg'
    """
    texts = ("null" if part is None else str(part) for part in parts)
    safe = (re.sub(r'[\x00-\x1f\x7f/\\:*?"<>|%~]', lambda m: f"%{ord(m[0]):02X}", text) for text in texts)
    return "~".join(safe) + suffix


def _is_list(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_list(dtype) or pa.types.is_large_list(dtype))


def _is_number(dtype: pa.DataType) -> bool:
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype) or pa.types.is_decimal(dtype))


def _as_list(column: pa.Array) -> pa.Array:
    """Convert a column to lists from offset 0, with nulls as empty lists."""
    if pa.types.is_null(column.type):
        column = column.cast(pa.list_(pa.null()))
    return pa.concat_arrays([column])

"""Draw gathered results as line charts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.errors import ConfigError
from riot_ops.kernels.arrow import float_column, int_column
from riot_ops.kernels.hashing import hash_columns
from riot_ops.schema import TIMESTAMP
from riot_ops.task import Case, Count, DeadLetters, Requirement, StatelessTask, register

__all__ = ["MultiLinePlot"]

COLOURS = ("#2563eb", "#dc2626", "#16a34a", "#d97706", "#7c3aed", "#0891b2")
#: Marks every value, so that a line of one can be seen.
POINT = (
    '<marker id="p" viewBox="0 0 4 4" refX="2" refY="2" markerWidth="4" markerHeight="4">'
    '<circle cx="2" cy="2" r="2" fill="#334155"/></marker>'
)
LEFT, RIGHT, TOP, BOTTOM = 70, 20, 40, 45


@register
@dataclass(frozen=True, kw_only=True)
class MultiLinePlot(StatelessTask):
    """Draw one SVG line chart per group of gathered results, with one line per kind of result.

    ``x`` is the time since the group's first result (ms), ``y`` the value.

    Parameters
    ----------
    groups : tuple of str, default ("sensor_id", "obs_type")
        Fields that make up a chart.
    line : str or None, default "analytic"
        Field that tells the lines of a chart apart; None: one line.
    value : str, default "value"
        Numeric field to draw.
    batch : str, default "batch_id"
        Field that tells gathered sets apart, as the accumulator writes it.
    width, height : int, default 800 and 600
        Size of a chart (pixels).

    Shapes and rates
    ----------------
    N:1, one row ``(seq, event_time, name, svg)`` per chart, behind an accumulator.

    Missing values
    --------------
    null and NaN interrupt nothing: the line goes on to the next value. A chart of nulls has no line.

    Errors
    ------
    An infinite value goes to the errors stream as ``not_finite``.

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task PLT.

    Examples
    --------
    >>> plot = MultiLinePlot(groups=("sensor_id",), line=None).session()
    >>> chart = plot.push({"sensor_id": "a", "event_time": None, "value": 1.0, "batch_id": 0})[0]
    >>> chart["name"], chart["svg"][:4]
    ('a', '<svg')
    """

    code: ClassVar[str] = "PLT"
    category: ClassVar[str] = "Visualization"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:1"

    groups: tuple[str, ...] = ("sensor_id", "obs_type")
    line: str | None = "analytic"
    value: str = "value"
    batch: str = "batch_id"
    width: Count = 800
    height: Count = 600

    def validate(self) -> None:
        if self.width < 200 or self.height < 150:
            raise ConfigError(f"a chart needs at least 200 by 150 pixels, got width={self.width}, height={self.height}")

    def requires(self) -> Mapping[str, Requirement]:
        names = [*self.groups, *([self.line] if self.line else []), self.batch, "event_time"]
        return {**dict.fromkeys(names, "any"), self.value: "number"}

    def writes(self) -> None:
        return None

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        seq = [pa.field("seq", pa.int64())] if "seq" in schema.names else []
        return pa.schema([*seq, ("event_time", TIMESTAMP), ("name", pa.string()), ("svg", pa.string())])

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        schema = self.output_schema(batch.schema)
        values, _ = float_column(batch.column(self.value))
        infinite = np.isinf(values)
        if infinite.any():
            dead.reject(batch, infinite, "not_finite", f"{self.value} is infinite")
            batch = batch.filter(pa.array(~infinite))
        charts = [
            self._chart(batch.take(pa.array(rows)))
            for rows in _groups([batch.column(f) for f in (self.batch, *self.groups)], batch.num_rows)
        ]
        return pa.RecordBatch.from_pylist([{k: c[k] for k in schema.names} for c in charts], schema=schema)

    def _chart(self, rows: pa.RecordBatch) -> dict[str, Any]:
        name = " ".join(str(rows.column(f)[0].as_py()) for f in self.groups)
        times = int_column(rows.column("event_time").cast(TIMESTAMP)) / 1000
        values, _ = float_column(rows.column(self.value))
        lines = {}
        for members in _groups([rows.column(self.line)] if self.line else [], rows.num_rows):
            label = str(rows.column(self.line)[int(members[0])].as_py()) if self.line else self.value
            shown = members[~np.isnan(values[members])]
            lines[label] = (times[shown] - times.min(), values[shown])
        last = rows.num_rows - 1
        return {
            "seq": rows.column("seq")[last].as_py() if "seq" in rows.schema.names else None,
            "event_time": rows.column("event_time")[last].as_py(),
            "name": name,
            "svg": self._svg(name, lines),
        }

    def _svg(self, title: str, lines: Mapping[str, tuple[npt.NDArray[Any], npt.NDArray[Any]]]) -> str:
        drawn = [v for v in lines.values() if v[0].size]
        x = np.concatenate([v[0] for v in drawn]) if drawn else np.zeros(1)
        y = np.concatenate([v[1] for v in drawn]) if drawn else np.zeros(1)
        right, low, high = float(x.max()) or 1.0, float(y.min()), float(y.max())
        span = (high - low) or 1.0
        across, down = self.width - LEFT - RIGHT, self.height - TOP - BOTTOM
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{self.width}" height="{self.height}" '
            f'font-family="sans-serif" font-size="12">{POINT}<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{self.width / 2}" y="22" text-anchor="middle" font-size="14">{escape(title)}</text>',
        ]
        for i in range(5):
            gy, gx = TOP + down * i / 4, LEFT + across * i / 4
            parts.append(
                f'<path d="M{LEFT} {gy}h{across}" stroke="#ddd"/>'
                f'<text x="{LEFT - 6}" y="{gy + 4}" text-anchor="end">{high - span * i / 4:.4g}</text>'
                f'<text x="{gx}" y="{self.height - 24}" text-anchor="middle">{right * i / 4:.4g}</text>'
            )
        parts.append(f'<text x="{LEFT + across / 2}" y="{self.height - 6}" text-anchor="middle">time (ms)</text>')
        for i, (label, (xs, ys)) in enumerate(lines.items()):
            colour = COLOURS[i % len(COLOURS)]
            points = " ".join(
                f"{LEFT + across * a / right:.1f},{TOP + down * (high - b) / span:.1f}"
                for a, b in zip(xs, ys, strict=True)
            )
            parts.append(
                f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5" '
                f'marker-start="url(#p)" marker-mid="url(#p)" marker-end="url(#p)"/>'
                f'<text x="{LEFT + 8}" y="{TOP + 14 + 15 * i}" fill="{colour}">{escape(label)}</text>'
            )
        return "".join([*parts, "</svg>"])

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "seq": [0, 1, 2, 3],
                "event_time": pa.array([0, 1_000_000, None, 3_000_000], TIMESTAMP),
                "sensor_id": ["a", "a", "<ü>", None],
                "obs_type": ["t", "t", "t", "t"],
                "analytic": ["AVG", "SLR", "AVG", None],
                "value": [1.0, None, float("nan"), -2.5],
                "batch_id": [0, 0, 0, 0],
            }
        )
        yield Case(cls(), batch)
        yield Case(cls(groups=("obs_type",), line=None, width=300, height=200), batch)


def _groups(columns: list[pa.Array], n: int) -> list[npt.NDArray[np.int64]]:
    """Row numbers of each group, groups in order of appearance."""
    h1, _ = hash_columns(columns, n)
    _, first, inverse = np.unique(h1, return_index=True, return_inverse=True)
    return [np.flatnonzero(inverse == g) for g in np.argsort(first)]

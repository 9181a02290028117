"""Line plots of the records of a stream, over event time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.checks import check_count
from riot_ops.core.errors import ConfigError, MissingExtraError, did_you_mean, escape_control, excerpt
from riot_ops.core.operator import KeyedOperator
from riot_ops.core.order import is_ordinal
from riot_ops.core.parameters import as_names
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.graph.graph import Graph

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["default_stream", "plot_table", "stream_key"]

F64 = npt.NDArray[np.float64]

#: Maximum points of a line that are drawn: the lowest and the highest of each part of a longer one.
MAX_POINTS = 5_000
#: Lines of at most this many points have a marker at each.
MAX_MARKED = 60
#: Characters of a label.
MAX_LABEL = 40
#: Names of fields that are times of a window, and no results.
TIMES = ("event_time", "window_start", "window_end")


def default_stream(streams: Iterable[str]) -> str:
    """Return the stream to plot where the user names none: the only one beside the errors."""
    found = [name for name in streams if name != ERRORS_STREAM]
    if len(found) != 1:
        raise ConfigError(
            "plot: stream must name the stream to draw, as there is "
            + (f"more than one: {', '.join(map(repr, found))}" if found else "none that can be read")
        )
    return found[0]


def stream_key(flow: Graph, stream: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the key of a stream: that of its step, or of the nearest keyed step before it, if it has the fields.

    >>> import riot_ops as ro
    >>> flow = ro.Dataflow("rooms")
    >>> readings = flow.source("readings", {"room": "string", "value": "double"})
    >>> _ = readings.key_by("room").apply(ro.tasks.KalmanFilter(), id="smooth").filter("value > 0", id="warm").to("out")
    >>> stream_key(flow, "warm", ["seq", "room", "value"]), stream_key(flow, "readings", ["room", "value"])
    (('room',), ())
    """
    known = {*names}
    waiting = [stream] if stream in flow.nodes else []
    for node in waiting:
        task = flow.nodes[node].task
        if isinstance(task, KeyedOperator) and (by := as_names(task.by)):
            return by if {*by} <= known else ()
        waiting += [edge.source for edge in flow.inputs(node) if edge.source not in waiting]
    return ()


def plot_table(
    table: pa.Table,
    title: str,
    key: tuple[str, ...],
    *,
    value: str | None,
    by: str | tuple[str, ...] | None,
    time: str,
    max_lines: int,
    y_label: str | None,
    ax: Axes | None,
) -> Axes:
    """Draw the records of a stream; see :meth:`riot_ops.runtime.binding.ReadableStreams.plot`."""
    check_count(max_lines=max_lines)
    by = key if by is None else as_names(by)
    for parameter, names in (("by", by), ("value", () if value is None else (value,))):
        for name in names:
            if name not in table.column_names:
                raise ConfigError(
                    f"plot: {parameter} = {name!r} is no field of the stream {title!r}; its fields are "
                    f"{', '.join(table.column_names)}{did_you_mean(name, table.column_names)}"
                )
    value = _value_field(table, title, by, time) if value is None else value
    y = _numbers(table, title, value)
    x, x_label = _times(table, time)
    if ax is None:
        try:
            import matplotlib.pyplot as plt
        except ImportError:
            raise MissingExtraError("plotting a stream", "plot") from None
        _, ax = plt.subplots(figsize=(9, 4), layout="constrained")
    rows, labels, keys = _lines(table, by, max_lines)
    handles = []
    for at, label in zip(rows, labels, strict=True):
        order = at[np.argsort(x[at], kind="stable")]
        kept = order[_thinned(y[order])]
        marker = "." if kept.size <= MAX_MARKED else None
        handles += ax.plot(x[kept], y[kept], marker=marker, linewidth=1.2, label=label if by else value)
    unit = (table.schema.field(value).metadata or {}).get(b"unit", b"").decode("utf-8", "replace")
    named = f"{value} ({unit})" if unit else value
    ax.set_ylabel(_text(named if y_label is None else y_label), parse_math=False)
    ax.set_xlabel(_text(x_label), parse_math=False)
    ax.set_title(_text(title) + (f": {len(labels)} of {keys:,} keys" if keys > len(labels) else ""), parse_math=False)
    ax.grid(alpha=0.3)
    if x.dtype.kind == "M" and x.size:
        from matplotlib.dates import ConciseDateFormatter

        ax.xaxis.set_major_formatter(ConciseDateFormatter(ax.xaxis.get_major_locator()))  # type: ignore[no-untyped-call]
    if by and handles:
        # matplotlib would leave out labels that begin with _, and read formulas between dollar signs
        legend = ax.legend(
            handles,
            ["-"] * len(handles),
            ncols=1 + (len(handles) - 1) // 15,
            title="-",
            fontsize="small",
            title_fontsize="small",
            loc="upper left",
            bbox_to_anchor=(1.01, 1.0),  # beside the lines
            borderaxespad=0.0,
        )
        for text, label in zip((legend.get_title(), *legend.get_texts()), (", ".join(by), *labels), strict=True):
            text.set(text=_text(label), parse_math=False)
    if not handles:
        ax.text(0.5, 0.5, "no records", ha="center", va="center", transform=ax.transAxes)
    return ax


def _text(text: str) -> str:
    """Return a name or value from outside as a short text of one line."""
    return excerpt(escape_control(text), MAX_LABEL)


def _is_number(dtype: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_integer(dtype) or types.is_floating(dtype) or types.is_decimal(dtype) or types.is_boolean(dtype)
    )


def _value_field(table: pa.Table, title: str, by: tuple[str, ...], time: str) -> str:
    """Return the field to draw: ``value``, or else the first of floating point, or else the first number."""
    fields = [
        field
        for field in table.schema
        if field.name not in (*by, time, *TIMES, "seq") and not is_ordinal(field.name) and _is_number(field.type)
    ]
    first: list[str] = [field.name for field in fields if field.name == "value"]
    floating: list[str] = [f.name for f in fields if pa.types.is_floating(f.type) or pa.types.is_decimal(f.type)]
    if not fields:
        raise ConfigError(
            f"plot: the stream {title!r} has no field with numbers; its fields are "
            f"{', '.join(f'{f.name} ({f.type})' for f in table.schema)}"
        )
    return (first or floating or [str(fields[0].name)])[0]


def _numbers(table: pa.Table, title: str, name: str) -> F64:
    column = table.column(name)
    if not _is_number(column.type) and not pa.types.is_null(column.type):
        raise ConfigError(f"plot: value = {name!r} must have numbers, but in the stream {title!r} it is {column.type}")
    if pa.types.is_decimal(column.type):
        column = column.cast(pa.float64(), safe=False)
    numbers: F64 = np.asarray(column.to_numpy(), dtype=object if column.type == pa.bool_() else None).astype(np.float64)
    return numbers


def _times(table: pa.Table, time: str) -> tuple[npt.NDArray[Any], str]:
    """Return where the records are on the axis of time: event time, or else their numbers."""
    known = time in table.column_names
    if known and pa.types.is_timestamp(table.schema.field(time).type):
        column = table.column(time)
        if column.null_count < len(column) or not len(column):
            zone = column.type.tz
            plain = pa.timestamp("us")
            times = (
                column.cast(pa.timestamp("us", zone), safe=False).cast(plain).to_numpy() if zone else column.cast(plain)
            )
            return np.asarray(times, dtype="datetime64[us]"), f"{time.replace('_', ' ')}{' (UTC)' if zone else ''}"
    if time != "event_time":
        if not known:
            raise ConfigError(
                f"plot: time = {time!r} is no field of the stream; its fields are {', '.join(table.column_names)}"
                f"{did_you_mean(time, table.column_names)}"
            )
        column = table.column(time)
        if not _is_number(column.type):
            raise ConfigError(f"plot: time = {time!r} must have times or numbers, got {column.type}")
        return column.to_numpy().astype(np.float64), time
    if "seq" in table.column_names:
        return table.column("seq").to_numpy().astype(np.float64), "number of the record (seq)"
    return np.arange(table.num_rows, dtype=np.float64), "row"


def _lines(table: pa.Table, by: tuple[str, ...], max_lines: int) -> tuple[list[npt.NDArray[np.int64]], list[str], int]:
    """Return the rows and the label of each line, and the number of keys: the keys with most rows, in their order."""
    if not table.num_rows:
        return [], [], 0
    if not by:
        return [np.arange(table.num_rows)], [""], 1
    columns = [pc.dictionary_encode(table.column(name).combine_chunks(), null_encoding="encode") for name in by]
    codes = np.zeros(table.num_rows, np.int64)
    for column in columns:
        parts = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        _, codes = np.unique(codes * (len(parts.dictionary) + 1) + parts.indices.to_numpy(), return_inverse=True)
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    most = np.lexsort([first, -counts])[:max_lines]
    shown = most[np.argsort(first[most])]
    labels = [", ".join(_key_text(table.column(name)[int(first[code])]) for name in by) for code in shown]
    return [np.flatnonzero(codes == code) for code in shown], labels, int(counts.size)


def _key_text(value: pa.Scalar) -> str:
    found: Any = value.as_py()
    return "null" if found is None else str(found)


def _thinned(y: F64) -> npt.NDArray[np.int64]:
    """Return the points of a line to draw: all, or of each part of equal length the lowest and the highest.

    >>> kept = _thinned(np.where(np.arange(100_000) == 54_321, 9.0, 0.0))
    >>> kept.size <= MAX_POINTS, 54_321 in kept
    (True, True)
    """
    if y.size <= MAX_POINTS:
        return np.arange(y.size)
    edges = np.linspace(0, y.size, MAX_POINTS // 2 + 1).astype(np.int64)
    low = np.where(np.isnan(y), np.inf, y)
    high = np.where(np.isnan(y), -np.inf, y)
    kept = [
        start + int(at)
        for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)
        for at in (np.argmin(low[start:end]), np.argmax(high[start:end]))
    ]
    return np.unique(np.array(kept, np.int64))

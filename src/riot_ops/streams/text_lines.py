"""Generated lines of text, in the format of a data set."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, dataclass_transform

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.schema import RAW, TIMESTAMP
from riot_ops.core.source import Split
from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.indexed import IndexedSource
from riot_ops.streams.parameters import Flag, check_fields

__all__ = [
    "TextLineSource",
    "choices",
    "format_decimals",
    "format_times",
    "join_cells",
    "normals",
    "random_words",
    "uniforms",
    "zipf_weights",
]

Numbers = npt.NDArray[np.int64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_M1 = np.uint64(0xBF58476D1CE4E5B9)
_M2 = np.uint64(0x94D049BB133111EB)
#: Use of the random words that choose dirty lines; subclasses use smaller numbers.
_DIRT = 1 << 20


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
@dataclass(eq=False, repr=False)
class TextLineSource(IndexedSource):
    """A stream of lines: subclasses make the lines of a range.

    Subclasses are dataclasses, whose fields are their parameters, by keyword only: ``late: Share = 0.02``.

    Line *i* must be a function of the parameters, the seed and *i* alone: random numbers by :meth:`random_words`,
    :meth:`uniforms` and :meth:`choices`, which hash the number of a line. Pacing uses evenly spaced event times:
    ``start_ms + i gap_ms``.

    Attributes
    ----------
    stream : str
        Name of the stream, by which :func:`riot_ops.streams.generate` finds it.
    domain : str
        Content of the stream, in a few words.
    line_time : LineTime or None
        Where and how a line writes its time, for :func:`riot_ops.streams.replay`; None if it has none.
    start_ms : int
        Time of the first line, in ms since 1970.
    gap_ms : float
        Mean time between two lines.
    """

    stream: ClassVar[str]
    domain: ClassVar[str]
    line_time: ClassVar[LineTime | None] = None
    start_ms: ClassVar[int] = 1_577_836_800_000  # 2020-01-01
    gap_ms: ClassVar[float] = 1.0
    rows_per_batch: ClassVar[int] = 65_536

    messages: int | None = None
    seed: int = 0
    dirt: Flag = field(default=True, kw_only=True)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        dataclass(eq=False, repr=False, kw_only=True)(cls)

    def __post_init__(self) -> None:
        super().__init__(self.messages, self.seed)
        check_fields(self)

    @abstractmethod
    def lines(self, numbers: Numbers) -> pa.Array:
        """Return the lines of these numbers, as text."""

    @property
    def schema(self) -> pa.Schema:
        return RAW

    def read(self, split: Split) -> Iterator[pa.RecordBatch]:
        for start in range(split["start"], split["end"], self.rows_per_batch):
            numbers = np.arange(start, min(start + self.rows_per_batch, split["end"]))
            times = self.times(numbers) * 1000
            yield pa.RecordBatch.from_arrays(
                [pa.array(numbers), pa.array(times).cast(TIMESTAMP), self.lines(numbers).cast(pa.binary())], schema=RAW
            )

    def times(self, numbers: Numbers) -> Numbers:
        """Return the evenly spaced times of the lines, in ms since 1970."""
        even: Numbers = self.start_ms + np.floor(numbers * self.gap_ms).astype(np.int64)
        return even

    def random_words(self, use: int, numbers: Numbers) -> npt.NDArray[np.uint64]:
        """Draw a random 64-bit number for each line number; ``use`` separates the purposes."""
        return random_words(self.seed, use, numbers)

    def uniforms(self, use: int, numbers: Numbers) -> npt.NDArray[np.float64]:
        """Draw a random number in [0, 1) for each line number."""
        return uniforms(self.seed, use, numbers)

    def choices(self, use: int, numbers: Numbers, weights: Sequence[float] | npt.NDArray[np.float64]) -> Numbers:
        """Draw one of several choices for each line number, by their weights."""
        return choices(self.seed, use, numbers, weights)

    def with_dirt(
        self,
        numbers: Numbers,
        lines: pa.Array,
        share: float,
        kinds: Sequence[pa.Array | str | Callable[[Numbers], pa.Array]],
    ) -> pa.Array:
        """Return the lines; with dirt, a share of them is replaced, by each kind equally often.

        A kind is one text, an array of a line per row, or a function that returns the lines of some rows.
        """
        if not self.dirt:
            return lines
        kind = np.floor(self.uniforms(_DIRT, numbers) * (len(kinds) / share))
        for number, what in enumerate(kinds):
            chosen = kind == number
            if callable(what):
                lines = pc.replace_with_mask(lines, pa.array(chosen), what(np.flatnonzero(chosen)))
            else:
                lines = pc.if_else(pa.array(chosen), what, lines)
        return lines

    def _time_of(self, message: int) -> int:
        return self.start_ms + int(message * self.gap_ms)

    def _messages_until(self, time_ms: int) -> int:
        return max(0, int((time_ms - self.start_ms) // self.gap_ms) + 1) if time_ms >= self.start_ms else 0

    def describe(self) -> dict[str, Any]:
        """Describe the stream as JSON-able data."""
        batch = next(self.read({"start": 0, "end": 1000}))
        payload = batch.column("payload")
        return {
            "name": self.stream,
            "domain": self.domain,
            "bytes": round(pc.sum(pc.binary_length(payload)).as_py() / batch.num_rows, 1),
            "rate": round(1000 / self.gap_ms, 3),
            "example": payload[0].as_py().decode(),
            "parameters": self.__getstate__(),
        }


def random_words(seed: int, use: int, numbers: Numbers) -> npt.NDArray[np.uint64]:
    """Hash seed, use and number, so that a random number depends on no earlier one (see ``noise``).

    >>> random_words(0, 1, np.arange(2)).tolist() == [int(random_words(0, 1, np.array([i]))[0]) for i in range(2)]
    True
    """
    with np.errstate(over="ignore"):
        key = _mixed(np.uint64(seed & 0xFFFFFFFFFFFFFFFF) + np.uint64(use + 1) * _GOLDEN)
        mixed: npt.NDArray[np.uint64] = _mixed(key + (numbers.astype(np.uint64) + np.uint64(1)) * _GOLDEN)
        return mixed


def _mixed(x: Any) -> Any:
    """Return the finaliser of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * _M1
    x = (x ^ (x >> np.uint64(27))) * _M2
    return x ^ (x >> np.uint64(31))


def uniforms(seed: int, use: int, numbers: Numbers) -> npt.NDArray[np.float64]:
    """Convert hashes to numbers in [0, 1)."""
    return (random_words(seed, use, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def choices(
    seed: int, use: int, numbers: Numbers, weights: Sequence[float] | npt.NDArray[np.float64]
) -> npt.NDArray[np.int64]:
    """Choose one of several for each draw, by weights of any sum.

    >>> np.bincount(choices(0, 1, np.arange(1000), [3, 1])).tolist()
    [758, 242]
    """
    edges = np.cumsum(np.asarray(weights, np.float64))
    return np.searchsorted(edges / edges[-1], uniforms(seed, use, numbers), side="right").astype(np.int64)


def normals(seed: int, use: int, numbers: Numbers) -> npt.NDArray[np.float64]:
    """Turn hashes into nearly normal numbers, mean 0, variance 1, within -4.9 to 4.9: each sums the eight bytes of one.

    >>> found = normals(0, 1, np.arange(100_000))
    >>> float(abs(found.mean()).round(2)), float(found.std().round(2))
    (0.0, 1.0)
    """
    parts = random_words(seed, use, numbers).astype("<u8").view(np.uint8).reshape(-1, 8)
    spread = np.sqrt(8 * (256.0**2 - 1) / 12)
    whole: npt.NDArray[np.float64] = (parts.sum(axis=1, dtype=np.int64) - 8 * 127.5) / spread
    return whole


@functools.lru_cache(maxsize=16)
def zipf_weights(n: int) -> npt.NDArray[np.float64]:
    """Return the weights of ``n`` ranks by Zipf's law.

    >>> zipf_weights(4).tolist()
    [1.0, 0.5, 0.3333333333333333, 0.25]
    """
    weights: npt.NDArray[np.float64] = 1.0 / np.arange(1, n + 1)
    return weights


def format_decimals(values: npt.NDArray[Any], places: int) -> pa.Array:
    """Format numbers with a fixed number of decimals.

    >>> format_decimals(np.array([1.5, -0.00004, 1e6]), 4).to_pylist()
    ['1.5000', '0.0000', '1000000.0000']
    """
    whole = np.rint(values * 10.0**places).astype("<i8")
    words = np.stack([whole, whole >> 63], axis=1)  # 128 bits, the lower half first
    found = pa.Array.from_buffers(pa.decimal128(18, places), whole.size, [None, pa.py_buffer(words)])
    return found.cast(pa.string())


def format_times(times: Numbers, unit: str, separator: str = "T") -> pa.Array:
    """Format times since 1970; the unit (s, ms, us) gives the decimals of a second. With D, days are dates.

    >>> format_times(np.array([1_605_846_600_097]), "ms").to_pylist()
    ['2020-11-20T04:30:00.097']
    """
    if unit == "D":
        return pa.array(times.astype(np.int32)).cast(pa.date32()).cast(pa.string())
    text = pa.array(times, pa.int64()).cast(pa.timestamp(unit)).cast(pa.string())
    return text if separator == " " else pc.replace_substring(text, " ", separator)


def join_cells(*cells: Any, separator: str = ",") -> pa.Array:
    """Join columns (arrays or one text for all rows) to lines of text.

    >>> join_cells(pa.array(["a", "b"]), np.array([1, 2])).to_pylist()
    ['a,1', 'b,2']
    """
    columns = [
        cell if isinstance(cell, str) else (cell if isinstance(cell, pa.Array) else pa.array(cell)).cast(pa.string())
        for cell in cells
    ]
    return pc.binary_join_element_wise(*columns, separator)

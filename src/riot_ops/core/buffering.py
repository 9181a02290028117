"""How records are gathered on their way: by bytes and time, held back by two marks, compressed where that pays."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, ClassVar, Literal

import msgspec

from riot_ops.core.errors import ConfigError, did_you_mean, short
from riot_ops.core.parameters import check_parameters

__all__ = ["AVAILABLE_NOW", "Buffering", "as_buffering", "check_target", "check_trigger"]

#: Batches that a queue has room for where its size is not given, and its least size in bytes.
BATCHES, LEAST_QUEUE = 4, 1 << 16

#: A trigger that takes what is there, and ends.
AVAILABLE_NOW = "available now"
_PART = r"(\d+\s+(micro|milli)?seconds?|\d+\.\d+\s+seconds?|\d+\s+(minute|hour|day|week)s?)"
_UNITS = "microsecond", "millisecond", "second", "minute", "hour", "day", "week"
_SECONDS = dict(zip(_UNITS, (1e-6, 1e-3, 1.0, 60.0, 3600.0, 86_400.0, 604_800.0), strict=True))
_INTERVAL = re.compile(rf"\s*(interval\s+)?{_PART}(\s+{_PART})*\s*", re.IGNORECASE)

Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
#: Up to some thirty years: a lock cannot wait for ever longer ones.
Milliseconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


@dataclass(frozen=True, kw_only=True)
class Buffering:
    """How the records of a dataflow are gathered into batches, how many may wait, and what is compressed.

    Results are the same for any of it. The presets go by name as well: ``flow.run(buffering="latency")``.

    ``throughput``
        1 MiB or 10 ms; on Spark a micro-batch each second.
    ``latency``
        16 KiB or 1 ms; on Spark one micro-batch behind the other.
    ``immediate``
        Each record alone and at once: what buffering is measured against. On Spark as little as goes together there.

    Parameters
    ----------
    capacity : int, bytes, default 8388608
        A batch goes on as soon as it holds so much; a record that is larger goes alone. With 0 each record does. On
        Spark the size of a packed block, and of the batches between the JVM and Python; there a batch of a source is
        cut into blocks of 64 KiB at the least, also with 0.
    flush_ms : float, 0 to 1e12, default 0
        How long the first record of a batch that is not full waits for others. While the steps are busy a batch
        grows in any case. Of no account on Spark, where nothing waits longer than its micro-batch takes.
    queue : int, bytes, optional
        Bytes that may wait between the source and the steps, ``capacity`` at least; by default four batches, 64 KiB at
        least.
    high, low : float, ``0 < low < high <= 1``, default 0.9 and 0.5
        Marks, as shares of ``queue``: where ``high`` is reached the source is held back, until no more than ``low``
        is left. Of no account on Spark, which asks a source for nothing that it does not process at once.
    codec : "lz4", "zstd" or None, default "lz4"
        What compresses batches that leave the process: packed blocks on Spark, and links. None: nothing.
    ratio : float in (0, 1], optional
        Selective compression: a batch goes compressed if that leaves at most this share of its bytes, and else as it
        is. By default all are compressed.
    trigger : str, optional
        On Spark the time from one micro-batch to the next, such as ``"1 second"``, where ``flow.start`` is not told
        and a source waits for records.

    Raises
    ------
    ConfigError
        For other values.

    Examples
    --------
    >>> Buffering.named("latency").capacity
    16384
    >>> Buffering(capacity=4096, flush_ms=5).room
    65536
    """

    PRESETS: ClassVar[tuple[str, ...]] = ("throughput", "latency", "immediate")

    capacity: Size = 8 << 20
    flush_ms: Milliseconds = 0.0
    queue: Size | None = None
    high: Share = 0.9
    low: Share = 0.5
    codec: Literal["lz4", "zstd"] | None = "lz4"
    ratio: Share | None = None
    trigger: str | None = None

    def __post_init__(self) -> None:
        check_parameters(self)
        check_trigger(self.trigger)
        if not self.low < self.high:
            raise ConfigError(f"Buffering: low must be below high, got {self.low:g} and {self.high:g}")
        if self.queue is not None and self.queue < max(self.capacity, 1):
            raise ConfigError(
                f"Buffering: queue must have room for a batch of {self.capacity:,} bytes (capacity), got {self.queue:,}"
            )
        if self.ratio is not None and self.codec is None:
            raise ConfigError(f"Buffering: ratio = {self.ratio:g} needs a codec, 'lz4' or 'zstd', got None")

    @property
    def room(self) -> int:
        """Bytes that may wait."""
        return max(BATCHES * self.capacity, LEAST_QUEUE) if self.queue is None else self.queue

    @classmethod
    def named(cls, name: str) -> Buffering:
        """A preset: ``throughput``, ``latency`` or ``immediate``.

        >>> Buffering.named("throughput").flush_ms
        10.0
        """
        if name == "throughput":
            return cls(capacity=1 << 20, flush_ms=10, trigger="1 second")
        if name == "latency":
            return cls(capacity=16 << 10, flush_ms=1)
        if name == "immediate":
            return cls(capacity=0)
        raise ConfigError(
            f"buffering must be a Buffering or one of {', '.join(cls.PRESETS)}, got {name!r}"
            f"{did_you_mean(name, cls.PRESETS)}"
        )


def as_buffering(given: Buffering | str | None) -> Buffering:
    """What a runner was given: a preset's name, or nothing for the default.

    >>> as_buffering("immediate").capacity, as_buffering(None) == Buffering()
    (0, True)
    """
    if given is None:
        return Buffering()
    if isinstance(given, str):
        return Buffering.named(given)
    if not isinstance(given, Buffering):
        raise ConfigError(f"buffering must be a Buffering or one of {', '.join(Buffering.PRESETS)}, got {short(given)}")
    return given


def check_trigger(given: object, *others: str) -> None:
    """Raise unless it is an interval as Spark reads one, another text that is allowed, or None.

    >>> check_trigger("1 minute 30 seconds")
    >>> check_trigger("soon")
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: trigger must be a text such as '1 second', got 'soon' (str)
    """
    if given is not None and not (isinstance(given, str) and given in others):
        interval_seconds(given, *others)


def interval_seconds(given: object, *others: str) -> float:
    """The seconds of a trigger that must be an interval, or else be told to be one of others as well.

    >>> interval_seconds("0.2 seconds"), interval_seconds("Interval 1 minute 30 SECONDS")
    (0.2, 90.0)
    """
    if not (isinstance(given, str) and _INTERVAL.fullmatch(given)):
        texts = " or ".join(map(repr, ("1 second", *others)))
        raise ConfigError(f"trigger must be a text such as {texts}, got {short(given)}")
    parts = re.findall(r"([\d.]+)\s+([a-z]+?)s?\b", given.lower())
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def check_target(target_s: object, max_records: int | None, min_records: int | None = None) -> None:
    """Raise unless the time that a micro-batch should take is one, and the bounds of its records are there and agree.

    >>> check_target(0.5, 100)
    >>> check_target(0.5, None)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: target_s = 0.5 needs max_records, with which the limit begins, got None
    """
    if target_s is None:
        if min_records is not None:
            raise ConfigError(f"min_records = {min_records} bounds what target_s sets, and that is None")
        return
    if not isinstance(target_s, Real) or isinstance(target_s, bool) or not 0 < float(target_s) < math.inf:
        raise ConfigError(f"target_s must be a finite number of seconds > 0, got {short(target_s)}")
    if max_records is None:
        raise ConfigError(f"target_s = {float(target_s):g} needs max_records, with which the limit begins, got None")
    if min_records is not None and min_records > max_records:
        raise ConfigError(f"min_records must be <= max_records, got {min_records} and {max_records}")

"""Buffering: when records form a batch, how many bytes may wait, and what is compressed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, ClassVar, Literal

import msgspec

from riot_ops.core.checks import check_seconds, duration_seconds
from riot_ops.core.errors import ConfigError, did_you_mean, value_text
from riot_ops.core.parameters import OWN_CHECK, Duration, as_timedelta, check_parameters

__all__ = ["AVAILABLE_NOW", "Buffering", "as_buffering", "check_target", "check_trigger"]

#: Default size of the queue in batches, and its minimum in bytes.
DEFAULT_QUEUE_BATCHES, MIN_QUEUE_BYTES = 4, 1 << 16

#: The trigger that processes all available records and ends.
AVAILABLE_NOW = "available now"
_PART = r"(\d+\s+(micro|milli)?seconds?|\d+\.\d+\s+seconds?|\d+\s+(minute|hour|day|week)s?)"
_UNITS = "microsecond", "millisecond", "second", "minute", "hour", "day", "week"
_SECONDS = dict(zip(_UNITS, (1e-6, 1e-3, 1.0, 60.0, 3600.0, 86_400.0, 604_800.0), strict=True))
_INTERVAL = re.compile(rf"\s*(interval\s+)?{_PART}(\s+{_PART})*\s*", re.IGNORECASE)

Size = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
#: Spark's notation is no duration, so that check_trigger checks it.
Trigger = Annotated[timedelta | str, OWN_CHECK]


@dataclass(frozen=True, kw_only=True)
class Buffering:
    """How the records of a dataflow form batches, how many bytes may wait, and what is compressed.

    It does not change results. A preset can be given by name: ``flow.run(buffering="latency")``.

    ``throughput``
        1 MiB or 10 ms; on Spark a micro-batch each second.
    ``latency``
        16 KiB or 1 ms; on Spark one micro-batch directly after the other.
    ``immediate``
        Each record alone, without waiting: the baseline for measurements of buffering. On Spark the smallest batches
        that it allows.

    Parameters
    ----------
    capacity : int, bytes, default 8388608
        The steps get a batch as soon as it holds this many bytes; a larger record forms a batch of its own. With 0 each
        record does. On Spark the size of a packed block, and of the batches between the JVM and Python; there a batch
        of a source is cut into blocks of at least 64 KiB, also with 0.
    flush_after : timedelta or text such as "10ms", default 0
        How long the first record of a partial batch waits for others. While the steps are busy a
        batch grows in any case. Spark ignores it: no record waits longer than its micro-batch takes.
    queue : int, bytes, optional
        Bytes that may wait between the source and the steps, at least ``capacity``; by default four batches, at least
        64 KiB.
    high, low : float, ``0 < low < high <= 1``, default 0.9 and 0.5
        Watermarks of back-pressure, as shares of ``queue``: at ``high`` the source stops, until no more than ``low`` is
        left. Spark ignores them: it reads from a source only what it processes directly.
    codec : "lz4", "zstd" or None, default "lz4"
        Codec for batches that leave the process: packed blocks on Spark, and links. None: no compression.
    ratio : float in (0, 1], optional
        Selective compression: a batch is sent compressed only if that leaves at most this share of its bytes. By
        default all batches are compressed.
    trigger : timedelta or text such as "1s" or, as Spark writes it, "1 second", optional
        On Spark the interval between micro-batches, unless ``flow.start`` gets one and if a
        source waits for records.

    Raises
    ------
    ConfigError
        If a value is out of range or two values contradict each other.

    Examples
    --------
    >>> Buffering.named("latency").capacity
    16384
    >>> Buffering(capacity=4096, flush_after="5ms").room
    65536
    """

    PRESETS: ClassVar[tuple[str, ...]] = ("throughput", "latency", "immediate")

    capacity: Size = 8 << 20
    flush_after: Duration = timedelta(0)
    queue: Size | None = None
    high: Share = 0.9
    low: Share = 0.5
    codec: Literal["lz4", "zstd"] | None = "lz4"
    ratio: Share | None = None
    trigger: Trigger | None = None

    def __post_init__(self) -> None:
        check_parameters(self)
        duration_seconds("Buffering: flush_after", self.flush_after, zero=True)
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
    def flush_seconds(self) -> float:
        return as_timedelta(self.flush_after).total_seconds()

    @property
    def room(self) -> int:
        """Bytes that may wait: ``queue``, or its default."""
        return max(DEFAULT_QUEUE_BATCHES * self.capacity, MIN_QUEUE_BYTES) if self.queue is None else self.queue

    @classmethod
    def named(cls, name: str) -> Buffering:
        """Return a preset: ``throughput``, ``latency`` or ``immediate``.

        >>> Buffering.named("throughput").flush_seconds
        0.01
        """
        if name == "throughput":
            return cls(capacity=1 << 20, flush_after="10ms", trigger="1s")
        if name == "latency":
            return cls(capacity=16 << 10, flush_after="1ms")
        if name == "immediate":
            return cls(capacity=0)
        raise ConfigError(
            f"buffering must be a Buffering or one of {', '.join(cls.PRESETS)}, got {name!r}"
            f"{did_you_mean(name, cls.PRESETS)}"
        )


def as_buffering(value: Buffering | str | None) -> Buffering:
    """Convert the option of a runner: a ``Buffering``, the name of a preset, or None for the default.

    >>> as_buffering("immediate").capacity, as_buffering(None) == Buffering()
    (0, True)
    """
    if value is None:
        return Buffering()
    if isinstance(value, str):
        return Buffering.named(value)
    if not isinstance(value, Buffering):
        raise ConfigError(
            f"buffering must be a Buffering or one of {', '.join(Buffering.PRESETS)}, got {value_text(value)}"
        )
    return value


def check_trigger(trigger: object, *others: str) -> None:
    """Raise unless the trigger is None, an interval, or one of the ``others``.

    >>> check_trigger("1 minute 30 seconds")
    >>> check_trigger("soon")
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: trigger must be a timedelta or a text such as '1s', got 'soon' (str)
    """
    if trigger is not None and not (isinstance(trigger, str) and trigger in others):
        interval_seconds(trigger, *others)


def interval_seconds(trigger: object, *others: str) -> float:
    """Return the length of a trigger that is an interval, in seconds; the error message also offers the ``others``.

    It is a duration, or a text in Spark's notation.

    >>> interval_seconds("200ms"), interval_seconds("0.2 seconds"), interval_seconds("Interval 1 minute 30 SECONDS")
    (0.2, 0.2, 90.0)
    """
    if not (isinstance(trigger, str) and _INTERVAL.fullmatch(trigger)):
        try:
            return duration_seconds("trigger", trigger, zero=True)
        except ConfigError:
            texts = " or ".join(map(repr, ("1s", *others)))
            raise ConfigError(
                f"trigger must be a timedelta or a text such as {texts}, got {value_text(trigger)}"
            ) from None
    parts = re.findall(r"([\d.]+)\s+([a-z]+?)s?\b", trigger.lower())
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def spark_interval(trigger: object) -> str:
    """Write a trigger that is an interval as Spark reads it.

    >>> spark_interval("1min")
    '60000 milliseconds'
    """
    return f"{round(1e3 * interval_seconds(trigger))} milliseconds"


def check_target(target_s: float | None, max_records: int | None, min_records: int | None = None) -> None:
    """Raise unless the target of a micro-batch, in seconds, is > 0 and its bounds of records are consistent.

    >>> check_target(0.5, 100)
    >>> check_target(0.5, None)
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: target_duration = 0.5 s needs max_records, the initial limit, got None
    """
    if target_s is None:
        if min_records is not None:
            raise ConfigError(f"min_records = {min_records} needs target_duration, whose limit it bounds, got None")
        return
    check_seconds("target_duration", target_s)
    if max_records is None:
        raise ConfigError(f"target_duration = {target_s:g} s needs max_records, the initial limit, got None")
    if min_records is not None and min_records > max_records:
        raise ConfigError(f"min_records must be <= max_records, got {min_records} and {max_records}")

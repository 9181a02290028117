"""Equipment monitoring: the delay of valves after their sensors, and an alarm when it grows."""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.parameters import Count, as_timedelta, check_arguments
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.neptune import operators

__all__ = ["COLUMNS", "PAIRS", "equipment_monitoring"]


def _numbered(prefix: str, first: int, last: int) -> tuple[str, ...]:
    return tuple(f"{prefix}{i:02d}" for i in range(first, last + 1))


#: The columns of the DEBS 2012 Grand Challenge, in order.
COLUMNS = (
    "ts", "index", *_numbered("mf", 1, 3), *_numbered("pc", 13, 15), *_numbered("pc", 25, 27), "res",
    *_numbered("bm", 5, 10), *_numbered("pp", 1, 36), *_numbered("pc", 1, 6), *_numbered("pc", 19, 24),
)  # fmt: skip
#: Sensors and the valves that follow them.
PAIRS = (("bm05", "bm08"), ("bm06", "bm09"), ("bm07", "bm10"))


def equipment_monitoring(
    *,
    window: timedelta | str = timedelta(days=1),
    growth: float = 0.01,
    baseline: Literal["min", "first", "mean"] = "min",
    allowed_lateness: timedelta | str = timedelta(seconds=1),
    max_pending: Count = 16,
    delimiter: str = "\t,",
) -> Dataflow:
    r"""Build equipment monitoring: readings → state changes → delays of valves after their sensors → delay trends.

    The source ``readings`` has lines of 66 cells, in the order of the DEBS 2012 Grand Challenge or of a header line.
    The cell ``ts`` is an ISO 8601 time, as in the files of the challenge, or a whole number of ns since 1970.
    The result streams are ``delays`` (``pair``, ``ts``, ``delay``), ``monitor`` (also ``count``, ``mean``, ``min``,
    ``max``, ``slope`` per hour, ``intercept``, ``alarm``) and ``alarms`` (the records of ``monitor`` with an alarm);
    times and delays are in ns. A change of a sensor that no valve follows goes to the errors stream as ``missed``, a
    change of a valve without a sensor's change as ``unmatched_effect``.

    Parameters
    ----------
    window : timedelta or text, default 1 day
        Length of the monitor's window.
    growth : float >= 0, default 0.01
        Share by which a delay may exceed the baseline without an alarm.
    baseline : "min", "first" or "mean", default "min"
        Minimum, oldest or mean delay of the window.
    allowed_lateness : timedelta or text, default 1 second
        How far readings may be out of order; later readings go to the errors stream.
    max_pending : int >= 1, default 16
        Changes of a sensor that may wait for their valve.
    delimiter : str, default "\t,"
        The delimiters: each of these characters separates two cells.

    References
    ----------
    .. [1] T. Buddhika, *Real-time stream processing in sensing environments*, thesis, 2015.
    .. [2] Z. Jerzak et al., *The DEBS 2012 Grand Challenge*, DEBS 2012.

    Examples
    --------
    >>> import pyarrow as pa
    >>> lines = ["ts,bm05,bm06,bm07,bm08,bm09,bm10", "0,0,0,0,0,0,0", "10000000,1,0,0,0,0,0", "210000000,1,0,0,1,0,0"]
    >>> readings = pa.table({"payload": [line.encode() for line in lines], "event_time": pa.nulls(4)})
    >>> row = equipment_monitoring().run(readings)["delays"].to_pylist()[0]
    >>> row["pair"], row["ts"], row["delay"]
    ('bm05-bm08', 210000000, 200000000)
    """
    check_arguments(equipment_monitoring, locals())
    flow = Dataflow("equipment_monitoring")
    states = tuple(sensor for sensor, _ in PAIRS) + tuple(valve for _, valve in PAIRS)
    times = {"event_time": ("ts", "instant"), "ts": ("ts", "instant_ns")}
    fields = {**times, **{name: (name, "bool") for name in states}}
    read = t.ParseLines(schema=fields, header=COLUMNS, delimiter=delimiter)
    lines = flow.source("readings").to(read, id="read")
    readings = lines.to(
        t.SortByEventTime(allowed_lateness=as_timedelta(allowed_lateness), scope="key", order_by="ts"), id="ordered"
    )
    changes = readings.to(t.ChangeDetector(fields=states, keep=("ts",)), id="state_change")
    known = {name: (f"{s}-{v}", role) for s, v in PAIRS for name, role in ((s, "cause"), (v, "effect"))}
    named = changes.to(t.Lookup(table=known, on=("field",), columns=("pair", "role"), default=""), id="pairs")
    delay = operators.PairDelay(by=("pair",), time="ts", max_pending=max_pending)
    delays = named.partition_by("pair").to(delay, id="delays")
    trend = operators.Trend(
        by=("pair",), value="delay", time="ts", window=as_timedelta(window), growth=growth, baseline=baseline
    )
    monitor = delays.to(trend, id="monitor")
    alarms = monitor.to(t.Filter("alarm"), id="alarms")
    return flow.sink("delays_sink", delays).sink("monitor_sink", monitor).sink("alarms_sink", alarms)

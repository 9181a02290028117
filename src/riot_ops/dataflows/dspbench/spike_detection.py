"""Spike detection: sensor readings far from their moving average."""

from __future__ import annotations

from typing import Literal

from riot_ops import tasks as t
from riot_ops.core.parameters import NonNegative, check_arguments
from riot_ops.dataflow import Dataflow

__all__ = ["spike_detection"]

#: The cell of each quantity in a line.
CELLS = {"temperature": 4, "humidity": 5, "light": 6, "voltage": 7}


def spike_detection(
    *,
    quantity: Literal["temperature", "humidity", "light", "voltage"] = "temperature",
    window: int = 1000,
    threshold: NonNegative = 0.03,
) -> Dataflow:
    """Build spike detection (SD): sensor lines → moving average per sensor → readings far from it.

    A line has eight cells separated by white space, as in the data of the Intel Berkeley lab: date, time, epoch, mote,
    temperature, humidity, light and voltage. A line with another number of cells, which is common there, or with an
    epoch or any of the four values that is not a number, is an error.
    The result stream is ``spikes``, with the fields ``device_id``, ``value`` and ``moving_average``.

    Parameters
    ----------
    quantity : "temperature", "humidity", "light" or "voltage", default "temperature"
        Quantity to monitor.
    window : int >= 1, default 1000
        Readings in the moving average, including the new one; fewer for a device's first readings.
    threshold : float >= 0, default 0.03
        Deviation that makes a spike, as a share of the moving average's absolute value.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench: a suite of benchmark applications for distributed data stream processing
       systems*, IEEE Access 8, 2020, DOI 10.1109/ACCESS.2020.3043948.

    Examples
    --------
    >>> import pyarrow as pa
    >>> lines = [f"2004-03-01 00:00:0{i} {i} 1 {v} 39.4 166.4 2.7" for i, v in enumerate((20.0, 20.2, 25.8))]
    >>> spikes = spike_detection().run(pa.table({"payload": lines, "event_time": pa.nulls(3)}))["spikes"]
    >>> spikes.select(["device_id", "value", "moving_average"]).to_pylist()
    [{'device_id': '1', 'value': 25.8, 'moving_average': 22.0}]
    """
    check_arguments(spike_detection, locals())
    flow = Dataflow("spike_detection")
    # All quantities are read, because a line with a malformed one is damaged: none of its values can be trusted.
    quantities = {"value" if name == quantity else name: (cell, "double") for name, cell in CELLS.items()}
    parse = t.ParseLines(
        format="spaces",
        cells=8,
        schema={"event_time": ((0, 1), "iso"), "epoch": (2, "int64"), "device_id": (3, "string"), **quantities},
    )
    readings = flow.source("sensors").to(parse, id="parse") >> t.Project(fields=("device_id", "value"))
    average = t.MovingAverage(by=("device_id",), window=window, mode="growing", output="moving_average")
    means = readings.partition_by("device_id").to(average, id="moving_average")
    deviates = f"abs(value - moving_average) > {threshold!r} * abs(moving_average)"
    spikes = means.shuffle().to(t.Filter(deviates), id="spikes")
    return flow.sink("spikes_sink", spikes)

"""Dataflows of many users, to measure savings by sharing: 35 synthetic ones, and 21 over the streams of RIoTBench."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import stream_schema
from riot_ops.dataflow import Dataflow, Stream, merge
from riot_ops.models import LinearModel, TreeModel
from riot_ops.streams.generator import GeneratedSource
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.streams.riotbench.grid import GridSource
from riot_ops.streams.riotbench.taxi import TaxiSource

__all__ = ["SHARE", "opmw_like", "pi_series", "riot21", "riot_source"]

#: Share of a dataflow's steps from its family's trunk; with this value, sharing saves 38 % of the steps of 35
#: dataflows.
SHARE = 0.69
#: Terms of the series, about a millisecond of work in plain Python.
TERMS = 3_000
TRUNK, TASK_TYPES = 41, 25
OPMW = {"value": "double", "pi": "double"}


def pi_series(row: dict[str, Any], terms: int = TERMS) -> dict[str, Any]:
    """Do a millisecond of work that does not depend on the row: π by the Leibniz series.

    >>> round(pi_series({})["pi"], 3), round(pi_series({}, 300)["pi"], 3)
    (3.141, 3.138)
    """
    return {"pi": 4 * math.fsum((-1) ** k / (2 * k + 1) for k in range(terms))}


def join_records(
    waiting: dict[str, int], row: dict[str, Any], *, inputs: int, work: Callable[[dict[str, Any]], dict[str, Any]]
) -> tuple[dict[str, int], dict[str, Any] | None]:
    """Join the records of several inputs by ``value``: one result when the last of them has come.

    >>> join_records({}, {"value": 7.0}, inputs=2, work=pi_series)
    ({'7.0': 1}, None)
    >>> waiting, result = join_records({"7.0": 1}, {"value": 7.0}, inputs=2, work=pi_series)
    >>> waiting, result["value"], round(result["pi"], 3)
    ({}, 7.0, 3.141)
    """
    key = str(row["value"])
    come = waiting.pop(key, 0) + 1
    if come < inputs:
        waiting[key] = come
        return waiting, None
    return waiting, {"value": row["value"], **work(row)}


def opmw_like(
    seed: int = 0,
    n: int = 35,
    *,
    families: int = 6,
    share: float = SHARE,
    median: float = 11,
    sigma: float = 0.6,
    min_steps: int = 2,
    max_steps: int = 38,
    work: Callable[[dict[str, Any]], dict[str, Any]] = pi_series,
) -> list[Dataflow]:
    """Create dataflows like scientific workflows: of different size, each beginning with the trunk of its family.

    A task with two inputs joins their records, so that every stream has a record for each message of its source.

    Parameters
    ----------
    seed : int, default 0
        Seed of all random choices.
    n : int, default 35
        Number of dataflows.
    families : int, default 6
        Number of families, each with its own source and trunk of tasks.
    share : float, 0 to 1, default :data:`SHARE`
        Share of a dataflow's steps that are from the trunk.
    median, sigma : float
        Parameters of the lognormal sizes.
    min_steps, max_steps : int
        Bounds of the sizes without sinks.
    work : function, default :func:`pi_series`
        Function of every task, which returns ``pi`` for a record.
    """
    if not 0 <= share <= 1:
        raise ConfigError(f"share must be 0 to 1, got {share!r}")
    if not 2 <= min_steps <= max_steps < TRUNK:
        raise ConfigError(f"sizes must be 2 <= min_steps <= max_steps < {TRUNK}, got {min_steps} and {max_steps}")
    draw = random.Random(seed)  # noqa: S311 (no secret)
    trunks = [_trunk(draw, family) for family in range(families)]
    return [
        _make_dataflow(draw, i, draw.choice(trunks), share, median, sigma, min_steps, max_steps, work) for i in range(n)
    ]


def _function_name(work: Callable[..., Any]) -> str:
    """Return a name that identifies a function, also with partially applied arguments."""
    if isinstance(work, functools.partial):
        return f"{_function_name(work.func)} {work.args} {work.keywords}"
    return getattr(work, "__name__", None) or repr(work)


def _trunk(draw: random.Random, family: int) -> list[tuple[str, int, list[int]]]:
    """Create the tasks of a family, each with type, position and the positions of its inputs.

    The first is the source.
    """
    trunk: list[tuple[str, int, list[int]]] = [(f"opmw.src{family}", 0, [])]
    for k in range(1, TRUNK):
        near = range(max(0, k - 4), k)
        parents = draw.sample(near, min(len(near), 2 if draw.random() < 0.25 else 1))
        trunk.append((f"f{family}.t{draw.randrange(TASK_TYPES)}", k, parents))
    return trunk


def _make_dataflow(
    draw: random.Random,
    i: int,
    trunk: Sequence[tuple[str, int, list[int]]],
    share: float,
    median: float,
    sigma: float,
    min_steps: int,
    max_steps: int,
    work: Callable[[dict[str, Any]], dict[str, Any]],
) -> Dataflow:
    size = min(max_steps, max(min_steps, round(draw.lognormvariate(math.log(median), sigma))))
    core = min(size, max(1, round(share * size)))
    flow = Dataflow(f"opmw-{i}")
    streams = [flow.source(trunk[0][0], schema=OPMW)]
    read: set[int] = set()

    def put(task_type: str, config: Any, parents: Sequence[int]) -> None:
        named: dict[str, Any] = {"label": task_type, "revision": f"{config} {_function_name(work)}"}
        task: t.Task = t.MapFunction(function=work, adds={"pi": "double"}, **named)
        if len(parents) > 1:
            joined = functools.partial(join_records, inputs=len(parents), work=work)
            task = t.KeyedFunction(function=joined, initial={}, schema=OPMW, by=(), **named)
        streams.append(merge(*(streams[p] for p in parents)).to(task, id=f"s{len(streams)}"))
        read.update(parents)

    for task_type, k, parents in trunk[1:core]:
        put(task_type, k, parents)
    for j in range(size - core):
        ends = [p for p in range(len(streams)) if p not in read]
        near = range(max(0, len(streams) - 4), len(streams))
        put("tail", f"{i}/{j}", [draw.choice(ends or list(near))])
    for j, place in enumerate(p for p in range(len(streams)) if p not in read):
        flow.sink(f"opmw.out.{i}.{j}", streams[place])
    return flow


# -- RIoTBench -------------------------------------------------------------------------------------

KEY = ("sensor_id", "obs_type")
STREAMS: dict[str, Callable[..., GeneratedSource]] = {"city": CitySource, "taxi": TaxiSource, "grid": GridSource}
SENSORS = 30


def riot_source(stream: str, messages: int | None = None) -> GeneratedSource:
    """Open the source of a stream for :func:`riot21`, with 30 sensors; unbounded without ``messages``."""
    return STREAMS[stream](SENSORS, messages=messages)


def riot21(store: str = "memory", broker: str = "memory://riot21") -> list[Dataflow]:
    """Create 21 dataflows: seven over each of CITY, TAXI and GRID, similar to ETL, STATS and PRED.

    Of each stream's 64 steps, 35 are distinct; in total 105 of 192.

    =============  ==============================================================================
    etl            parse, clean, annotate; insert into a table; SenML
    short          parse, clean; insert
    stats          parse; average, gathered and drawn; Kalman filter, regression; distinct count
    kalman         parse; Kalman filter, regression; publish
    pred           parse; decision tree; average, regression, error; publish
    cleaned-stats  parse, clean, annotate; average; Kalman filter, regression
    cleaned-pred   parse, clean, annotate; decision tree, regression; publish
    =============  ==============================================================================

    Cleaning filters by range and by known sensors, interpolates and joins.

    Parameters
    ----------
    store, broker : str
        Store of the tables, and broker of the published results.
    """
    return [variant(stream, store, broker) for stream in STREAMS for variant in _VARIANTS]


@functools.lru_cache(None)
def _sensors(stream: str) -> tuple[str, ...]:
    source = STREAMS[stream](SENSORS, format="observations")
    return tuple(sorted(next(source.read({"start": 0, "end": 512})).column("sensor_id").unique().to_pylist()))


def _parsed(flow: Dataflow, stream: str) -> Stream:
    return flow.source(stream).to(t.ParseSenML(schema=stream, meta=True, on_error="null"), id="parse")


def _cleaned(flow: Dataflow, stream: str) -> Stream:
    """Build the messages of known sensors as rows, with out-of-range values interpolated."""
    numeric = stream_schema(stream).numeric
    ranged = _parsed(flow, stream).to(t.RangeFilter(bounds=stream, on_error="null"), id="range")
    known = t.CheckBloomFilter(models={"sensor_id": _sensors(stream)[::2]}, on_error="null")
    filled = ranged.to(known, id="bloom").to(t.Interpolation(by=KEY, fields=numeric), id="interpolate")
    join = t.AssembleMessage(schema=stream, layout="both", timeout=timedelta(minutes=1), partial=True)
    return filled.to(join, id="join")


def _annotated(flow: Dataflow, stream: str) -> Stream:
    table = {sensor: (f"unit {i}",) for i, sensor in enumerate(_sensors(stream))}
    annotate = t.Lookup(table=table, on=("sensor_id",), columns=("annotation",), default="")
    return _cleaned(flow, stream).to(annotate, id="annotate")


def _insert(stream: str, store: str) -> t.Task:
    return t.InsertTable(store=store, table="readings", partition=stream, row="{event_time:ms}|{sensor_id}|{seq}")


def _average(value: str, by: tuple[str, ...]) -> t.Task:
    return t.MovingAverage(by=by, value=value, output="average", mode="sliding", window=10)


def _trend(stream: Stream, value: str, by: tuple[str, ...]) -> Stream:
    smooth = stream.to(t.KalmanFilter(by=by, value=value), id="kalman")
    return smooth.to(t.SlidingRegression(by=by, value=value), id="slr")


def _line(value: str) -> t.Task:
    model = LinearModel(inputs=(value,), target="next", intercept=0.5, coefficients=(0.97,))
    return t.PredictLinearRegression(inputs=(value,), model=model.to_json())


def _tree(value: str) -> t.Task:
    """Create a decision tree with the classes low, middle and high."""
    model = TreeModel(
        inputs=(value,),
        target="level",
        classes=("low", "middle", "high"),
        left=(1, -1, 3, -1, -1),
        right=(2, -1, 4, -1, -1),
        feature=(0, 0, 0, 0, 0),
        threshold=(10.0, 0.0, 40.0, 0.0, 0.0),
        value=((0.4, 0.3, 0.3), (1.0, 0.0, 0.0), (0.0, 0.5, 0.5), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)),
    )
    return t.Classify(inputs=(value,), model=model.to_json())


def _publish(what: str, stream: str, broker: str) -> t.Task:
    return t.PublishMQTT(url=broker, topic=f"{what}/{stream}", payload=None)


def _etl(stream: str, store: str, broker: str) -> Dataflow:
    flow = Dataflow(f"{stream}-etl")
    rows = _annotated(flow, stream)
    flow.sink("table", rows.to(_insert(stream, store), id="insert"))
    return flow.sink("senml", rows.to(t.CSVToSenML(schema=stream), id="senml_lines"))


def _short(stream: str, store: str, broker: str) -> Dataflow:
    flow = Dataflow(f"{stream}-short")
    return flow.sink("table", _cleaned(flow, stream).to(_insert(stream, store), id="insert"))


def _stats(stream: str, store: str, broker: str) -> Dataflow:
    flow = Dataflow(f"{stream}-stats")
    obs = _parsed(flow, stream)
    average = obs.to(_average("value", KEY), id="average")
    gathered = average.to(t.Collect(size=10_000, groups=("obs_type",)), id="gather")
    drawn = gathered.to(t.PlotLines(groups=("obs_type",), series="sensor_id", value="average"), id="chart")
    distinct = obs.to(t.DistinctCount(by=("obs_type",)), id="distinct")
    return flow.sink("stats", drawn, _trend(obs, "value", KEY), distinct)


def _kalman(stream: str, store: str, broker: str) -> Dataflow:
    flow = Dataflow(f"{stream}-kalman")
    trend = _trend(_parsed(flow, stream), "value", KEY)
    return flow.sink("trends", trend.to(_publish("kalman", stream, broker), id="publish"))


def _pred(stream: str, store: str, broker: str) -> Dataflow:
    flow = Dataflow(f"{stream}-pred")
    obs = _parsed(flow, stream)
    predicted = obs.to(_average("value", KEY), id="average").to(_line("value"), id="line")
    error = predicted.to(t.EstimateError(by=KEY, observed="value"), id="error")
    return flow.sink(
        "pred", error.to(_publish("pred", stream, broker), id="publish"), obs.to(_tree("value"), id="tree")
    )


def _stats_cleaned(stream: str, store: str, broker: str) -> Dataflow:
    flow = Dataflow(f"{stream}-cleaned-stats")
    rows, value, by = _annotated(flow, stream), stream_schema(stream).numeric[0], ("sensor_id",)
    return flow.sink("cleaned", rows.to(_average(value, by), id="average"), _trend(rows, value, by))


def _pred_cleaned(stream: str, store: str, broker: str) -> Dataflow:
    flow = Dataflow(f"{stream}-cleaned-pred")
    value = stream_schema(stream).numeric[0]
    predicted = _annotated(flow, stream).to(_tree(value), id="tree").to(_line(value), id="line")
    return flow.sink("predictions", predicted.to(_publish("cleaned", stream, broker), id="publish"))


_VARIANTS = (_etl, _short, _stats, _kalman, _pred, _stats_cleaned, _pred_cleaned)

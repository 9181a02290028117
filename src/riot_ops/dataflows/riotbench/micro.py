"""Micro-benchmarks: one task between a source and a sink."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from riot_ops import tasks as t
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.connectors.mqtt.memory import PublishedMessage
from riot_ops.connectors.mqtt.source import MESSAGES, MQTTSource
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import CITY
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.ingest.pace import paced
from riot_ops.models import fit_linear, fit_tree
from riot_ops.streams.repeating import RepeatingSource
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.task import Case, KeyedTask, Task, find_task

__all__ = ["SOURCE", "micro", "micro_case", "micro_code", "micro_source"]

SOURCE, SINK = "source", "sink"
KEY = ("sensor_id", "obs_type")
SENSORS = 90
#: Records of the table that a source repeats: of observations, and of lines, which are longer.
ROWS, LINES = 32_768, 8192
#: Records on which a candidate input is tried.
TRIAL_ROWS = 256
#: Students per XML document, as in the benchmark.
STUDENTS = 37


def micro(code: str = "KAL", task: Task | None = None) -> Dataflow:
    """Build source → task → sink for a task by its code; for the code MQS, MQTT source → sink.

    Parameters
    ----------
    code : str, default "KAL"
        Code or name of the task.
    task : Task, optional
        The task with custom parameters; it reads the records of :func:`micro_source` for the code.

    Examples
    --------
    >>> flow = micro("KAL")
    >>> [n.id for n in flow.nodes.values()]
    ['source', 'kalman_filter', 'sink']
    >>> flow.run(micro_source("KAL", messages=100)).summary.rows
    {'kalman_filter': 100}
    """
    code = micro_code(code)
    if code == MQTTSource.code:
        if task is not None:
            raise ConfigError(f"{MQTTSource.code} is a source and takes no task, got {task!r}")
        flow = Dataflow(f"micro-{MQTTSource.code.lower()}")
        return flow.sink(SINK, flow.source(SOURCE, schema=MESSAGES))
    case = micro_case(code)
    task = task or case.task
    flow = Dataflow(f"micro-{code.lower()}")
    return flow.sink(SINK, flow.source(SOURCE, schema=case.batch.schema).to(task, id=task.name()))


def micro_code(code: str) -> str:
    """Return the code of a task, of a setting of one, or of the MQTT source, by code or name."""
    return code.upper() if code.upper() in (MQTTSource.code, *t.PRESETS) else find_task(code).code


def micro_source(
    code: str = "KAL", messages: int | None = None, rate: float | None = None, speed: float | None = None
) -> Source:
    """Build the source for :func:`micro`: readings of CITY if they suit the task; for MQS, messages of a broker.

    Parameters
    ----------
    code : str, default "KAL"
        Code or name of the task.
    messages : int, optional
        Number of messages; None: endless.
    rate, speed : float, optional
        See :class:`~riot_ops.ingest.pace.PacedSource`.
    """
    if micro_code(code) == MQTTSource.code:
        return paced(_published_source(messages), speed, rate)
    return paced(RepeatingSource(pa.Table.from_batches([micro_case(code).batch]), messages), speed, rate)


@functools.lru_cache(64)
def micro_case(code: str) -> Case:
    """Return a task with parameters, and the records that its source repeats.

    Tasks of the benchmark get the benchmark's inputs; other tasks get the readings of CITY if they accept
    them, else the records of their own example cases that they accept.
    """
    if micro_code(code) in _RECIPES:
        return _RECIPES[micro_code(code)]()
    task_class = find_task(code)
    found = list(_candidates(task_class))
    for case in found:
        if not _rejects(case.task, case.batch.slice(0, TRIAL_ROWS)):
            return case
    if found:  # only repeated records are rejected
        return found[0]
    raise ConfigError(f"{task_class.name()} accepts the records of none of its example cases; add one in cases()")


def _candidates(task_class: type[Task]) -> Iterator[Case]:
    try:
        task = task_class(by=KEY) if issubclass(task_class, KeyedTask) else task_class()
        task.output_schema(observations().schema)
        yield Case(task, observations())
    except (ConfigError, TypeError):  # it has required parameters, or reads other fields
        pass
    for case in task_class.cases():
        rows = number_messages(case.batch)
        good = [i for i in range(rows.num_rows) if not _rejects(case.task, rows.slice(i, 1))]
        if good:
            yield Case(case.task, number_messages(rows.take(pa.array(np.resize(good, LINES)))), case.name)


def _rejects(task: Task, rows: pa.RecordBatch) -> bool:
    """Return whether a new session of a task rejects any of the rows."""
    session = task.session()
    session.push_batch(rows)
    return bool(session.errors)


def number_messages(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Number the rows of a batch as messages, from 0."""
    names = [n for n in batch.schema.names if n != "seq"]
    fields = [pa.field("seq", pa.int64(), nullable=False), *(batch.schema.field(n) for n in names)]
    columns = [pa.array(np.arange(batch.num_rows)), *(batch.column(n) for n in names)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


# -- inputs ----------------------------------------------------------------------------------------


@functools.lru_cache(1)
def observations() -> pa.RecordBatch:
    """Generate readings of CITY, each a message of its own."""
    messages = -(-ROWS // len(CITY.observed))
    rows = CitySource(SENSORS, messages, drop=0.0).observations(0, messages).slice(0, ROWS)
    return number_messages(rows.drop_columns(["ordinal"]))


def _messages() -> pa.RecordBatch:
    """Generate readings of CITY, five to a message."""
    return CitySource(SENSORS, LINES, drop=0.0).observations(0, LINES)


def _published_source(messages: int | None) -> Source:
    """Publish messages of CITY to a file-based broker for a waiting subscriber; the folder is removed at exit."""
    if messages is None:
        raise ConfigError("micro MQS needs a number of messages, since they are published before it starts")
    folder = Path(tempfile.mkdtemp(prefix="riot_ops-mqs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    url, name = (folder / "broker").as_uri(), "micro"
    broker = FolderBroker(url)
    broker.session(name, ["#"])  # the session queues messages for the source, which connects under this name
    lines = _lines("senml").column("payload").to_pylist()
    broker.publish(PublishedMessage("city", lines[i % len(lines)]) for i in range(messages))
    return MQTTSource(url=url, topics=("#",), client_id=name, spool=str(folder / "spool"), messages=messages)


def _lines(format: str) -> pa.RecordBatch:
    return CitySource(SENSORS, LINES, format=format, drop=0.0).lines(0, LINES)  # type: ignore[arg-type]


INPUTS, TARGET = ("temperature", "humidity", "light", "dust"), "airquality_raw"
LEVELS = ("GOOD", "AVERAGE", "BAD", "VERYBAD")


@functools.lru_cache(1)
def _wide() -> pa.RecordBatch:
    """Generate messages of CITY with a column per field, and the quartile of the air quality."""
    rows = number_messages(CitySource(SENSORS, ROWS, format="wide", drop=0.0, dirt=False).wide(0, ROWS))
    values = rows.column(TARGET).to_numpy(zero_copy_only=False)
    place = np.searchsorted(np.nanquantile(values, (0.25, 0.5, 0.75)), values)
    return rows.append_column("level", pa.array(LEVELS).take(pa.array(place)))


def _numbers(rows: pa.RecordBatch) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.stack([rows.column(name).to_numpy(zero_copy_only=False) for name in INPUTS], 1)


def _regression() -> t.PredictLinearRegression:
    rows = _wide()
    model = fit_linear(_numbers(rows), rows.column(TARGET).to_numpy(zero_copy_only=False), INPUTS, TARGET)
    return t.PredictLinearRegression(inputs=INPUTS, model=model.to_json())


def _tree() -> t.Classify:
    rows = _wide().slice(0, 4096)
    model = fit_tree(_numbers(rows), rows.column("level").to_pylist(), INPUTS, "level", min_samples_leaf=20)
    return t.Classify(inputs=INPUTS, model=model.to_json())


def _documents() -> pa.RecordBatch:
    """Generate XML documents with a class of students each."""
    rng = np.random.default_rng(0)

    def student(number: int) -> str:
        return (
            f'<student rollno="{number}"><firstname>Ada {number}</firstname><lastname>Ünal</lastname>'
            f"<nickname>a{number}</nickname><marks>{rng.integers(40, 100)}</marks></student>"
        )

    texts = ["<class>" + "".join(student(i * STUDENTS + k) for k in range(STUDENTS)) + "</class>" for i in range(256)]
    return number_messages(pa.RecordBatch.from_pydict({"payload": pa.array(texts)}))


def _half_of_sensors() -> tuple[str, ...]:
    """Return every other sensor: the benchmark's Bloom filter passes half of its input."""
    return tuple(sorted(observations().column("sensor_id").unique().to_pylist())[::2])


def _annotation() -> t.Lookup:
    sensors = observations().column("sensor_id").unique().to_pylist()
    return t.Lookup(table={one: f"unit {one}" for one in sensors}, on=("sensor_id",), columns="unit", default="")


_RECIPES: dict[str, Callable[[], Case]] = {
    "ANN": lambda: Case(_annotation(), observations()),
    "ATQ": lambda: next(case for case in _candidates(t.Lookup) if case.name == "store"),
    "XML": lambda: Case(t.ParseXML(), _documents()),
    "SML": lambda: Case(t.ParseSenML(schema="city"), _lines("senml")),
    "C2S": lambda: Case(t.CSVToSenML(schema="city"), _lines("csv")),
    "BLF": lambda: Case(t.CheckBloomFilter(models={"sensor_id": _half_of_sensors()}), observations()),
    "MBL": lambda: Case(
        t.CheckBloomFilter(models={"sensor_id": _half_of_sensors(), "obs_type": CITY.observed}), observations()
    ),
    "LZP": lambda: next(case for case in _candidates(t.Zip) if case.name == "folder"),
    "RZP": lambda: next(_candidates(t.Zip)),
    "RGF": lambda: Case(t.RangeFilter(bounds="city"), observations()),
    "DAC": lambda: Case(t.DistinctCount(by=("obs_type",)), observations()),
    "BLT": lambda: Case(t.TrainBloomFilter(field="sensor_id"), observations()),
    "MLR": lambda: Case(_regression(), _wide()),
    "MLT": lambda: Case(t.TrainLinearRegression(inputs=INPUTS, target=TARGET), _wide()),
    "DTC": lambda: Case(_tree(), _wide()),
    "DTT": lambda: Case(t.TrainDecisionTree(inputs=INPUTS, target="level"), _wide()),
    "JON": lambda: Case(t.AssembleMessage(schema=None, fields=CITY.observed, by=("seq",)), _messages()),
}

"""Single tasks on one core: the compiled loops alone, the task with all that surrounds them, parsers."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from riot_bench.harness.data import needs
from riot_bench.harness.measure import Measure, kernel_times, median, one_core, seconds
from riot_ops import tasks as t
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.schema import CITY
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.task import KeyedTask, Task

__all__ = ["measures", "task_under_test"]

CODES = ("KAL", "AVG", "SLR", "SOM", "DAC", "BLF", "RGF")
KEYS = (1000, 100_000)
#: Bare Kalman loop.
REACH = {"KAL": 50e6}
BATCH = 65_536
#: A document of the kind that the benchmark's sample is.
STUDENTS = '<?xml version="1.0"?>\n<class>\n{}</class>\n'
STUDENT = """    <student rollno="{i}">
        <firstname>first{i}</firstname>
        <lastname>last{i}</lastname>
        <nickname>nick{i}</nickname>
        <marks>{i}</marks>
    </student>
"""
#: Kernels that find the state of a key, and note that it changes, whatever the task.
LOOKUP = ("hashing.hash_spans", "hashing.hash_words", "hashing.combine", "index.lookup", "index.resolve", "index.mark")


def measures(quick: bool = False) -> Iterator[Measure]:
    """The suite."""
    needs("this benchmark", "bench", "orjson")
    repetitions, batches, messages = (2, 4, 20_000) if quick else (7, 16, 100_000)
    with one_core():
        yield from _parse(messages, repetitions)
        yield from _parse_xml(messages // 100, repetitions)
        for keys in KEYS:
            data = _readings(keys, batches)
            for code in CODES:
                yield from _throughput(code, keys, data, repetitions)


def _parse(messages: int, repetitions: int) -> Iterator[Measure]:
    from riot_bench.baselines.python.senml import parse

    lines = CitySource(1000, messages).lines(0, messages)
    task, dead = t.ParseSenML(schema="city"), DeadLetters("parse")
    slices = [lines.slice(i, 8192) for i in range(0, messages, 8192)]
    payloads = [s.column("payload").to_pylist() for s in slices]
    ours = messages / seconds(lambda: [task.apply(s, dead) for s in slices], repetitions)
    theirs = messages / seconds(lambda: [parse(p) for p in payloads], max(2, repetitions // 2))
    yield Measure("kernels/senml", ours, "messages/s", "CITY, 8,192 messages at once, to columns, one core")
    yield Measure("kernels/orjson", theirs, "messages/s", "the same with orjson.loads")
    yield Measure("kernels/senml-vs-orjson", ours / theirs, "ratio", "orjson.loads to the same columns, one core", 10)


def _parse_xml(messages: int, repetitions: int) -> Iterator[Measure]:
    """XML to a checksum or to columns; the ratios are of runs next to each other."""
    from riot_bench.baselines.python.xml_readers import expat_alone, sax_alone

    texts = [STUDENTS.format("".join(STUDENT.format(i=i) for i in range(40)))] * messages
    batch, dead = pa.RecordBatch.from_pydict({"payload": texts}), DeadLetters("parse")
    few = texts[: max(1, messages // 10)]  # SAX is slow
    what = f"documents of 40 records, {len(texts[0]):,} characters, one core"
    for task in (t.ParseXML(), t.ParseXML(layout="records")):
        ours, against_expat, against_sax = [], [], []
        for _ in range(repetitions):
            ours.append(messages / seconds(functools.partial(task.apply, batch, dead), 1))
            against_expat.append(ours[-1] * seconds(lambda: expat_alone(texts), 1, warm=0) / messages)
            against_sax.append(ours[-1] * seconds(lambda: sax_alone(few), 1, warm=0) / len(few))
        yield Measure(f"kernels/xml/{task.layout}", median(ours), "messages/s", what)
        for name, ratios, reach in (("Expat", against_expat, 1), ("xml.sax", against_sax, 3)):
            label = f"kernels/xml-vs-{name.lower().removeprefix('xml.')}/{task.layout}"
            yield Measure(
                label, median(ratios), "ratio", f"{name}, which does nothing with what it finds; {what}", reach
            )


def _readings(keys: int, batches: int) -> list[pa.RecordBatch]:
    """Readings of random sensors; each value is one of 10,000."""
    rng = np.random.default_rng(0)
    names = pa.array([f"sensor-{k:06d}" for k in range(keys)])
    kinds = pa.array(CITY.observed)
    made = []
    for i in range(batches):
        values = np.round(20.0 + 5.0 * rng.standard_normal(BATCH), 3)
        made.append(
            pa.RecordBatch.from_pydict(
                {
                    "seq": pa.array(np.arange(i * BATCH, (i + 1) * BATCH)),
                    "sensor_id": names.take(pa.array(rng.integers(0, keys, BATCH))),
                    "obs_type": kinds.take(pa.array(rng.integers(0, len(kinds), BATCH))),
                    "value": pa.array(values),
                }
            )
        )
    return made


def task_under_test(code: str, keys: int) -> Task:
    """The task of a code, keyed by sensor; DAC by type of observation, as in STATS."""
    if code == "RGF":
        return t.RangeFilter(bounds="city")
    if code == "BLF":
        return t.CheckBloomFilter(members=tuple(f"sensor-{k:06d}" for k in range(0, keys, 2)))
    by = {"DAC": ("obs_type",)}.get(code, ("sensor_id",))
    kinds: dict[str, type[KeyedTask]] = {
        "KAL": t.KalmanFilter,
        "AVG": t.MovingAverage,
        "SLR": t.SlidingRegression,
        "SOM": t.SecondOrderMoment,
        "DAC": t.DistinctCount,
    }
    return kinds[code](by=by)


def _throughput(code: str, keys: int, data: list[pa.RecordBatch], repetitions: int) -> Iterator[Measure]:
    """Rows per second of a warm task: all of push_batch, and its kernels but for the key lookup."""
    session = task_under_test(code, keys).session()
    for batch in data:  # all keys are known then
        session.push_batch(batch)
    whole, inner, shares = [], [], ""
    for _ in range(repetitions):
        with kernel_times() as times:
            start = time.perf_counter()
            for batch in data:
                session.push_batch(batch)
            whole.append(time.perf_counter() - start)
        shares = times.shares(whole[-1])
        lookup = LOOKUP if session.task.stateful else ()
        inner.append(sum(s for name, s in times.spent.items() if name not in lookup))
    rows = BATCH * len(data)
    bare = "compiled loops alone" + (", the keys' slots given" if session.task.stateful else ", hashing included")
    yield Measure(f"kernels/{code}/kernel/{keys}", rows / median(inner), "rows/s", bare, REACH.get(code))
    yield Measure(f"kernels/{code}/task/{keys}", rows / median(whole), "rows/s", f"push_batch; time: {shares}")

"""Single tasks on one core: the compiled kernels alone, whole tasks, and parsers."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.timing import kernel_times, median, median_seconds
from riot_ops import tasks as t
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import CITY
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.task import KeyedTask, Task

__all__ = ["measures", "task_under_test"]

CODES = ("KAL", "AVG", "SLR", "SOM", "DAC", "BLF", "RGF")
KEYS = (1000, 100_000)
#: Target of the Kalman filter's kernel in rows per second.
REACH = {"KAL": 50e6}
BATCH = 65_536
#: Document like the sample of RIoTBench.
STUDENTS = '<?xml version="1.0"?>\n<class>\n{}</class>\n'
STUDENT = """    <student rollno="{i}">
        <firstname>first{i}</firstname>
        <lastname>last{i}</lastname>
        <nickname>nick{i}</nickname>
        <marks>{i}</marks>
    </student>
"""
#: Kernels that every keyed task has: they look up a key's state, mark it as changed, and find infinite numbers.
COMMON_KERNELS = (
    "hashing.hash_spans",
    "hashing.hash_words",
    "hashing.combine",
    "keyed_hashing.hash_spans_keyed",
    "keyed_hashing.hash_words_keyed",
    "keyed_hashing.combine_keyed",
    "index.lookup",
    "index.resolve",
    "index.mark_slots",
    "lazy_rows.any_infinite",
)


def measures(quick: bool = False) -> Iterator[Measure]:
    """Run the suite."""
    require_extra("this benchmark", "bench", "orjson")
    repetitions, batches, messages = (2, 4, 20_000) if quick else (7, 16, 100_000)
    with pinned_to_one_core():
        yield from _senml_parsing(messages, repetitions)
        yield from _xml_parsing(messages // 100, repetitions)
        for keys in KEYS:
            data = _readings(keys, batches)
            for code in CODES:
                yield from _throughput(code, keys, data, repetitions)


def _senml_parsing(messages: int, repetitions: int) -> Iterator[Measure]:
    from riot_bench.baselines.python.senml import parse

    lines = CitySource(1000, messages).lines(0, messages)
    task, errors = t.ParseSenML(schema="city"), RejectedRecords("parse")
    slices = [lines.slice(i, 8192) for i in range(0, messages, 8192)]
    payloads = [s.column("payload").to_pylist() for s in slices]
    ours = messages / median_seconds(lambda: [task.apply(s, errors) for s in slices], repetitions)
    theirs = messages / median_seconds(lambda: [parse(p) for p in payloads], max(2, repetitions // 2))
    yield Measure("kernels/senml", ours, "messages/s", "CITY, 8,192 messages at once, to columns, one core")
    yield Measure("kernels/orjson", theirs, "messages/s", "the same with orjson.loads")
    yield Measure("kernels/senml-vs-orjson", ours / theirs, "ratio", "orjson.loads to the same columns, one core", 10)


def _xml_parsing(messages: int, repetitions: int) -> Iterator[Measure]:
    """Measure XML parsing to a checksum or to columns; ratios compare adjacent runs."""
    from riot_bench.baselines.python.xml_readers import parse_with_expat, parse_with_sax

    texts = [STUDENTS.format("".join(STUDENT.format(i=i) for i in range(40)))] * messages
    batch, errors = pa.RecordBatch.from_pydict({"payload": texts}), RejectedRecords("parse")
    few = texts[: max(1, messages // 10)]  # SAX is slow
    what = f"documents of 40 records, {len(texts[0]):,} characters, one core"
    for task in (t.ParseXML(), t.ParseXML(layout="records")):
        ours, against_expat, against_sax = [], [], []
        for _ in range(repetitions):
            ours.append(messages / median_seconds(functools.partial(task.apply, batch, errors), 1))
            against_expat.append(ours[-1] * median_seconds(lambda: parse_with_expat(texts), 1, warm=0) / messages)
            against_sax.append(ours[-1] * median_seconds(lambda: parse_with_sax(few), 1, warm=0) / len(few))
        yield Measure(f"kernels/xml/{task.layout}", median(ours), "messages/s", what)
        for name, ratios, reach in (("Expat", against_expat, 1), ("xml.sax", against_sax, 3)):
            label = f"kernels/xml-vs-{name.lower().removeprefix('xml.')}/{task.layout}"
            yield Measure(label, median(ratios), "ratio", f"{name} without handlers; {what}", reach)


def _readings(keys: int, batches: int) -> list[pa.RecordBatch]:
    """Generate readings of random sensors with about 10,000 distinct values."""
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
    """Create the task of a code, keyed by sensor; DAC by observation type, as in STATS."""
    if code == "RGF":
        return t.RangeFilter(bounds="city")
    if code == "BLF":
        return t.CheckBloomFilter(models={"sensor_id": [f"sensor-{k:06d}" for k in range(0, keys, 2)]})
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
    """Measure rows per second of a warm task: all of push_batch, and its kernels without the key lookup."""
    session = task_under_test(code, keys).session(ordered=False)  # it gets the same records again
    for batch in data:  # afterwards, all keys are known
        session.push_batch(batch)
    whole, inner, shares = [], [], ""
    for _ in range(repetitions):
        with kernel_times() as times:
            start = time.perf_counter()
            for batch in data:
                session.push_batch(batch)
            whole.append(time.perf_counter() - start)
        shares = times.shares(whole[-1])
        common = COMMON_KERNELS if session.task.stateful else ()
        inner.append(sum(s for name, s in times.spent.items() if name not in common))
    rows = BATCH * len(data)
    bare = "kernels alone" + (", without the key lookup" if session.task.stateful else ", with hashing")
    yield Measure(f"kernels/{code}/kernel/{keys}", rows / median(inner), "rows/s", bare, REACH.get(code))
    yield Measure(f"kernels/{code}/task/{keys}", rows / median(whole), "rows/s", f"push_batch; time: {shares}")

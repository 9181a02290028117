"""No task rounds a value that it passes on, compares or counts: it keeps every digit, or refuses the type by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import TIMESTAMP
from riot_ops.dataflows.dspbench.operators import BoundedCount, SlidingWindow, TopK
from riot_ops.dataflows.neptune.operators import Trend
from riot_ops.dataflows.neptune.operators.pair_delay import PairDelay
from riot_ops.sketches import BloomFilter
from riot_ops.task import Task, registered_tasks

NOON_US = 1_714_564_800_000_000
ID = 0x70B3D57ED0046F00
ORDER = (3, 1, 4, 1, 5, 9, 2, 6, 5, 3)
#: Types, and values of them that float64 does not distinguish.
TYPES: dict[pa.DataType, list[int]] = {
    pa.int64(): [ID + i for i in ORDER],
    pa.uint64(): [2**64 - 20 + i for i in ORDER],
    pa.decimal128(38, 0): [10**37 + i for i in ORDER],
    pa.timestamp("ns", "UTC"): [1_714_564_800_123_456_000 + i for i in ORDER],
    pa.timestamp("us", "UTC"): [2**57 + i for i in ORDER],
    pa.date32(): [19_000 + i for i in ORDER],
    pa.int32(): [2**31 - 20 + i for i in ORDER],
    pa.bool_(): [i % 2 for i in ORDER],
}


def column_of(dtype: pa.DataType, numbers: list[Any]) -> pa.Array:
    if pa.types.is_temporal(dtype):
        return pa.array(numbers, pa.int32() if dtype.bit_width == 32 else pa.int64()).cast(dtype)
    if pa.types.is_boolean(dtype):
        return pa.array([None if n is None else bool(n) for n in numbers])
    return pa.array(numbers, dtype)


def numbers_of(column: pa.Array) -> list[Any]:
    """The values of any type as Python integers (a decimal unchanged)."""
    dtype = column.type
    if pa.types.is_temporal(dtype):
        column = column.cast(pa.int32() if dtype.bit_width == 32 else pa.int64())
    return [None if v is None else v if isinstance(v, float) else int(v) for v in column.to_pylist()]


@dataclass(frozen=True)
class Exact:
    """A task over the field ``v``, and its result by Python's integers."""

    task: Task
    reference: Callable[[list[int]], list[Any]]
    output: str = "v"

    def batch(self, dtype: pa.DataType, numbers: list[int]) -> pa.RecordBatch:
        n = len(numbers)
        times = pa.array([NOON_US + i for i in range(n)], TIMESTAMP)
        values = column_of(dtype, numbers)
        asked = column_of(dtype, [None if i % 2 else v for i, v in enumerate(numbers)])
        return pa.record_batch(
            {
                "seq": pa.array(range(n), pa.int64()),
                "event_time": times,
                "v": values,
                "asked": asked,
                "name": pa.array([f"n{i}" for i in range(n)]),
                "other": values,
                "pair": pa.array([i // 2 for i in range(n)]),
                "obs_type": pa.array(["effect" if i % 2 else "cause" for i in range(n)]),
                "role": pa.array(["effect" if i % 2 else "cause" for i in range(n)]),
            }
        )


def distinct_before(numbers: list[int]) -> list[int]:
    return [len({*numbers[: i + 1]}) for i in range(len(numbers))]


def changes(numbers: list[int]) -> list[int]:
    return [b for a, b in pairwise(numbers) if a != b]


def counts(numbers: list[int]) -> list[int]:
    return [numbers[: i + 1].count(v) for i, v in enumerate(numbers)]


def delays(numbers: list[int]) -> list[int]:
    """Microseconds since the oldest cause, in every second record, of the same value that no effect has had."""
    waiting: list[tuple[int, int]] = []
    found = []
    for i, v in enumerate(numbers):
        if i % 2 == 0:
            waiting.append((v, i))
        elif cause := next((one for one in waiting if one[0] == v), None):
            waiting.remove(cause)
            found.append(i - cause[1])
    return found


def moments(numbers: list[int]) -> list[float]:
    return [float(sum(n * n for n in Counter(numbers[: i + 1]).values())) for i in range(len(numbers))]


def increases(numbers: list[int]) -> list[float | None]:
    """Growth of a counter that starts again at 0 where it falls."""
    return [None, *(float(b - a if b >= a else b) for a, b in pairwise(numbers))]


def window(name: str, *options: Any) -> t.Window:
    return t.Window(frame="1min", aggregates={"x": ("v", name, *options)})


MIN, SECOND = ID + 3, timedelta(seconds=1)
MICRO = timedelta(microseconds=1)
CASES: dict[str, list[Exact]] = {
    "WIN": [
        Exact(window("min"), lambda v: [min(v)], "x"),
        Exact(window("max"), lambda v: [max(v)], "x"),
        Exact(window("first"), lambda v: [v[0]], "x"),
        Exact(window("last"), lambda v: [v[-1]], "x"),
        Exact(window("unique"), lambda v: [len({*v})], "x"),
        Exact(window("distinct", 14), lambda v: [len({*v})], "x"),
        Exact(window("matches", "==", MIN), lambda v: [v.count(MIN)], "x"),
        Exact(window("share", ">", MIN), lambda v: [sum(x > MIN for x in v) / len(v)], "x"),
        Exact(window("sum"), lambda v: [sum(v) if sum(v) < (2**64 if max(v) >= 2**63 else 2**63) else None], "x"),
    ],
    "RSM": [
        Exact(t.RunningSummary(value="v", prefix="x_"), lambda v: [min(v[: i + 1]) for i in range(len(v))], "x_min"),
        Exact(t.RunningSummary(value="v", prefix="x_"), lambda v: [max(v[: i + 1]) for i in range(len(v))], "x_max"),
        Exact(t.RunningSummary(value="v"), lambda v: [float(sum(v[: i + 1])) for i in range(len(v))], "sum"),
    ],
    "TRD": [
        Exact(Trend(value="v"), lambda v: [min(v[: i + 1]) for i in range(len(v))], "min"),
        Exact(
            Trend(value="v", window=3 * MICRO),
            lambda v: [max(v[max(i - 2, 0) : i + 1]) for i in range(len(v))],
            "max",
        ),
    ],
    "PDL": [Exact(PairDelay(value="v", role="role"), delays, "delay")],
    "JON": [
        Exact(
            t.AssembleMessage(schema=None, fields=("cause", "effect"), value="v", by=("pair",)),
            lambda v: v[::2],
            "cause",
        ),
        Exact(
            t.AssembleMessage(schema=None, fields=("cause", "effect"), value="v", by=("pair",)),
            lambda v: v[1::2],
            "effect",
        ),
    ],
    "AOJ": [Exact(t.AsOfJoin(fields="asked"), lambda v: [v[i - 1] for i in range(1, len(v), 2)], "asked")],
    "INC": [Exact(t.CounterIncrease(value="v", output="x"), increases, "x")],
    "CHG": [Exact(t.ChangeDetector(fields="v", value="x"), changes, "x")],
    "DAC": [Exact(t.DistinctCount(field="v", output="x", precision=14), distinct_before, "x")],
    "SOM": [Exact(t.SecondOrderMoment(value="v", output="x", method="exact"), moments, "x")],
    "RGF": [
        Exact(
            t.RangeFilter(by=None, bounds={"v": (ID + 2, ID + 5)}),
            lambda v: [x for x in v if ID + 2 <= x <= ID + 5],
        ),
        Exact(
            t.RangeFilter(by="name", value="v", bounds={f"n{i}": (ID + 2, 2**64 - 15) for i in range(9)}),
            lambda v: [x for i, x in enumerate(v) if i == 9 or ID + 2 <= x <= 2**64 - 15],
        ),
    ],
    "DDP": [
        Exact(t.Deduplicate(fields="v", capacity=100), lambda v: list(dict.fromkeys(v))),
        Exact(t.Deduplicate(by="v", ttl=SECOND), lambda v: list(dict.fromkeys(v))),
    ],
    "CNT": [Exact(t.RunningCount(by="v"), counts, "count")],
    "BCT": [Exact(BoundedCount(field="v", capacity=100), counts, "count")],
    "TPK": [
        Exact(TopK(item="name", value="v", k=4, every=SECOND), lambda v: sorted(v, reverse=True)[:4]),
    ],
    "SLW": [
        Exact(
            SlidingWindow(window=MICRO, fields="v"),
            lambda v: [x for i in range(len(v)) for x in (*v[i - 1 : i], v[i])],
        )
    ],
    "ACC": [Exact(t.Collect(size=5, groups=()), lambda v: [v[:5], v[5:]])],
    "UPV": [Exact(t.Unpivot(fields=("v", "other"), value_name="x"), lambda v: [x for y in v for x in (y, y)], "x")],
    "PRJ": [Exact(t.Project(fields=("v",)), lambda v: v)],
    "NOP": [Exact(t.NoOp(), lambda v: v)],
    "RDR": [Exact(t.SortByEventTime(allowed_lateness=SECOND), lambda v: v)],
    "ORD": [Exact(t.DropLate(), lambda v: v)],
}
#: Tasks that compute in float64, as their documentation says; all other numbers are unchanged.
COMPUTED = {
    *("AVG", "BAY", "BND", "BOL", "BSM", "CDT", "CLA", "CLS", "DCR", "DCS", "DTT", "ERR", "EWM", "HMD"),
    *("INP", "KAL", "LEX", "MKS", "MLR", "MLT", "NNT", "PI", "PLT", "QLB", "RMD"),
    *("SHA", "SLM", "SLR", "SPC", "SSM", "VAR", "WAV"),
}
#: Tasks whose values are texts, times of records, or results of the user's function.
OTHERS = {
    *(
        "ABD",
        "ABU",
        "ATI",
        "ATR",
        "BFN",
        "BLF",
        "BLT",
        "BOW",
        "C2S",
        "CMP",
        "FEX",
        "FLM",
        "FLT",
        "IVJ",
        "JSD",
    ),
    *(
        "KFN",
        "LKP",
        "MAP",
        "MQP",
        "NUT",
        "PAL",
        "PJS",
        "PRS",
        "ZIP",
        "SLT",
        "SML",
        "SMP",
        "SQI",
    ),
    *("TOK", "TOT", "WUP", "XML"),
}


def test_every_task_is_in_one_class():
    codes = [task.code for task in registered_tasks() if task.__module__.startswith("riot_ops.")]
    assert sorted(codes) == sorted([*CASES, *COMPUTED, *OTHERS])


@pytest.mark.parametrize("code", sorted(COMPUTED))
def test_computing_tasks_accept_numbers_and_refuse_times(code):
    (cls,) = [task for task in registered_tasks() if task.code == code]
    assert "float64" in (cls.__doc__ or ""), "its documentation does not say that it computes in float64"
    for case in cls.cases():
        schema = case.batch.schema
        for name, wanted in case.task.requires().items():
            if wanted != "number" or pa.types.is_null(schema.field(name).type):
                continue
            place = schema.get_field_index(name)
            case.task.output_schema(schema.set(place, pa.field(name, pa.int64())))
            for dtype in (pa.timestamp("ns"), pa.date32(), pa.string()):
                with pytest.raises(ConfigError, match=name) as caught:
                    case.task.output_schema(schema.set(place, pa.field(name, dtype)))
                assert str(dtype) in str(caught.value)


#: Tasks that compute in float64, from no numbers of their input.
WITHOUT_NUMBERS = {"LEX", "MKS", "PI", "PLT"}
#: Numbers that float64 cannot hold, and their neighbours that it holds.
ROUNDED: dict[pa.DataType, tuple[Any, Any]] = {
    pa.int64(): (-(2**53) - 1, 2**60),
    pa.uint64(): (2**64 - 1, 2**63),
    pa.decimal128(38, 0): (10**37 + 1, 10**22),
    pa.decimal128(20, 1): (Decimal("1234567890123456789.1"), Decimal("0.1")),
}


@pytest.mark.parametrize("dtype", ROUNDED, ids=str)
@pytest.mark.parametrize("cls", registered_tasks(), ids=lambda cls: cls.code)
def test_number_that_a_computing_task_would_round_is_rejected(cls, dtype):
    fields = {name for case in cls.cases() for name in case.task.float64_fields}
    if cls.code in COMPUTED:
        assert bool(fields) == (cls.code not in WITHOUT_NUMBERS), "float64_fields names what its kernels read"
    if cls.code in CASES and cls.code not in ("SOM", "WIN"):
        assert not fields, "a task that keeps numbers exact rejects none"
    done: set[str] = set()
    for case in cls.cases():
        schema = case.batch.schema
        for name in {*case.task.float64_fields} - done:
            place, n = schema.get_field_index(name), case.batch.num_rows
            nested = pa.types.is_list(schema.field(name).type) or pa.types.is_large_list(schema.field(name).type)
            bad, good = (pa.array([number] * n, dtype) for number in ROUNDED[dtype])
            if nested:
                bad, good = (pa.ListArray.from_arrays(range(n + 1), column) for column in (bad, good))
            if name in ("seq", *getattr(case.task, "by", ())):
                continue
            try:
                case.task.output_schema(schema.set(place, pa.field(name, bad.type)))
            except ConfigError as error:
                assert name in str(error)
                continue
            done.add(name)
            session = case.task.session(ordered=False)
            assert session.push_batch(case.batch.set_column(place, name, bad)).num_rows == 0
            own = [e for e in session.errors if "float64 cannot hold" in e["message"]]
            assert {(e["reason"], e["task"]) for e in own} == {("out_of_range", cls.name())}
            assert len(own) == len(session.errors) == n
            session = case.task.session(ordered=False)
            session.push_batch(case.batch.set_column(place, name, good))
            assert not [e for e in session.errors if "float64 cannot hold" in e["message"]]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(
    ("code", "number"), [(code, i) for code, cases in CASES.items() for i in range(len(cases))], ids=str
)
def test_values_are_exact_or_their_type_is_refused(code, number, dtype):
    case, numbers = CASES[code][number], TYPES[dtype]
    batch = case.batch(dtype, numbers)
    try:
        schema = case.task.output_schema(batch.schema)
    except ConfigError as error:
        field = "asked" if code == "AOJ" else "v"
        assert repr(field) in str(error), error
        assert str(dtype) in str(error), error
        assert dtype not in (pa.int64(), pa.uint64(), pa.int32(), pa.bool_()), "numbers of 64 bits must be taken"
        return
    session = case.task.session()
    outputs = [session.push_batch(batch.slice(a, 3)).to_pylist() for a in range(0, batch.num_rows, 3)]
    rows = [row for out in outputs for row in out] + session.flush()
    assert {e["reason"] for e in session.errors} <= {"unmatched_effect"}
    column = pa.array([row[case.output] for row in rows], schema.field(case.output).type)
    if pa.types.is_list(column.type):
        found = [numbers_of(column[i].values) for i in range(len(column))]
    else:
        found = numbers_of(column)
    wanted = case.reference([bool(v) for v in numbers] if pa.types.is_boolean(dtype) else numbers)
    if code == "DAC" or (code == "WIN" and number == 5):
        assert found == pytest.approx(wanted, abs=1)
    else:
        assert found == wanted


@pytest.mark.parametrize("dtype", [pa.int64(), pa.uint64(), pa.decimal128(38, 0), pa.date32()], ids=str)
def test_bloom_filter_distinguishes_values(dtype):
    numbers = TYPES[dtype]
    column = column_of(dtype, numbers)
    one = BloomFilter(1000, 1e-9)
    one.add(column.slice(0, 1))
    assert [bool(x) for x in one.contains(column)] == [x == numbers[0] for x in numbers]

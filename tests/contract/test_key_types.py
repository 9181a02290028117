"""Keys of every type: results do not depend on it; types that cannot be keys are refused by name."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal

import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.task import KeyedTask, registered_tasks
from riot_ops.testing.records import with_row_numbers

DAY = dt.date(2024, 5, 1)
NOON = dt.datetime(2024, 5, 1, 12)  # noqa: DTZ001

#: By type, three different values.
KEYS = {
    pa.bool_(): [True, False, None],
    pa.int8(): [-1, 0, 1],
    pa.int32(): [-(2**31), 0, 2**31 - 1],
    pa.uint64(): [2**63, 2**64 - 1, 1],
    pa.float32(): [1.5, -1.5, 0.0],
    pa.float64(): [1e300, 1e-300, float("nan")],
    pa.string(): ["", "a" * 40, "a" * 41],
    pa.large_string(): ["é", "e", "\0"],
    pa.string_view(): ["short", "longer than twelve bytes", "longer than twelve byteS"],
    pa.binary(): [b"", b"\0", b"\0\0"],
    pa.large_binary(): [b"\xff", b"\xfe", b""],
    pa.binary(6): [b"\x00\x1b\x44\x11\x3a\xb7", b"\x00\x1b\x44\x11\x3a\xb8", b"\0" * 6],
    pa.binary_view(): [b"x" * 20, b"x" * 21, b"x"],
    pa.date32(): [DAY, DAY + dt.timedelta(days=1), dt.date(1969, 12, 31)],
    pa.date64(): [DAY, DAY + dt.timedelta(days=1), dt.date(1969, 12, 31)],
    pa.time32("s"): [dt.time(1), dt.time(2), dt.time(3)],
    pa.time64("us"): [dt.time(1), dt.time(1, 0, 0, 1), dt.time(3)],
    pa.timestamp("s"): [NOON, NOON + dt.timedelta(seconds=1), NOON - dt.timedelta(days=30_000)],
    pa.timestamp("us", "Europe/Berlin"): [NOON.astimezone(dt.UTC), None, dt.datetime(1969, 12, 31, tzinfo=dt.UTC)],
    pa.duration("ms"): [dt.timedelta(0), dt.timedelta(milliseconds=1), dt.timedelta(days=-1)],
    pa.decimal128(10, 2): [Decimal("1.00"), Decimal("1.01"), Decimal("-1.00")],
    pa.decimal256(50, 20): [Decimal(1), Decimal(2), None],
    pa.dictionary(pa.int8(), pa.string()): ["a", "b", None],
    pa.dictionary(pa.int32(), pa.binary(2)): [b"ab", b"ba", None],
    pa.dictionary(pa.int16(), pa.date32()): [DAY, None, dt.date(1, 1, 1)],
}

REFUSED = (
    pa.list_(pa.int64()),
    pa.list_(pa.int64(), 2),
    pa.struct([("a", pa.int64())]),
    pa.map_(pa.string(), pa.int64()),
    pa.month_day_nano_interval(),
    pa.decimal128(10, -2),
    pa.decimal256(76, 0),
)


def typed(values, dtype):
    if pa.types.is_dictionary(dtype):
        return pa.array(values, dtype.value_type).dictionary_encode().cast(dtype)
    return pa.array(values, dtype)


#: Tasks whose results come from a public hash or the text of a key: sketches, names of archives and of models.
HASHED = ("BLT", "DAC", "DTT", "MLT", "NNT", "ZIP")
COUNTS = [1, 1, 2, 1, 2, 3, 3, 2, 4]
PICKS = [0, 1, 0, 2, 1, 0, 1, 2, 0]


@pytest.mark.parametrize("dtype", KEYS, ids=str)
def test_key_of_each_type_is_counted(dtype):
    values = KEYS[dtype]
    column = typed([values[i] for i in PICKS], dtype)
    found = t.RunningCount(by="k").session().push_batch(pa.table({"k": column}))
    assert found["count"].to_pylist() == COUNTS
    assert repr(found["k"].to_pylist()) == repr(column.to_pylist())
    sliced = pa.concat_arrays([column, column]).slice(4, 9)  # rows 4 to 8, then 0 to 3
    again = t.RunningCount(by="k").session().push_batch(pa.table({"k": sliced}))
    seen = [repr(v) for v in sliced.to_pylist()]
    assert again["count"].to_pylist() == [seen[: i + 1].count(v) for i, v in enumerate(seen)]


@pytest.mark.parametrize("dtype", KEYS, ids=str)
def test_restored_state_knows_keys_of_each_type(dtype):
    column = typed([KEYS[dtype][i] for i in PICKS], dtype)
    first, then = t.RunningCount(by="k").session(), t.RunningCount(by="k").session()
    first.push_batch(pa.table({"k": column[:5]}))
    then.restore(first.snapshot())
    assert then.push_batch(pa.table({"k": column[5:]}))["count"].to_pylist() == COUNTS[5:]


def test_equal_keys_of_other_encodings_are_one_key():
    count = t.RunningCount(by="k").session()
    for dtype in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        found = count.push_batch(pa.table({"k": pa.array(["a text of more than 15 bytes", "b", None], dtype)}))
    assert found["count"].to_pylist() == [4, 4, 4]


def test_zeros_nan_and_decimals_of_other_scale_are_one_key():
    floats = pa.array([0.0, -0.0, float("nan"), -float("nan"), None])
    assert t.RunningCount(by="k").session().push_batch(pa.table({"k": floats}))["count"].to_pylist() == [1, 2, 1, 2, 1]
    count = t.RunningCount(by="k").session()
    for dtype in (pa.decimal128(5, 1), pa.decimal128(30, 10), pa.decimal256(40, 3)):
        found = count.push_batch(pa.table({"k": pa.array([Decimal(10), Decimal("0.1"), None], dtype)}))
    assert found["count"].to_pylist() == [3, 3, 3]


@pytest.mark.parametrize("dtype", REFUSED, ids=str)
def test_key_of_nested_type_is_refused_by_name(dtype):
    schema = pa.schema([("k", dtype), ("value", pa.float64()), ("event_time", pa.timestamp("us", "UTC"))])
    for task in (t.RunningCount(by="k"), t.Deduplicate(by="k"), t.Deduplicate(fields="k", capacity=9)):
        with pytest.raises(ConfigError, match=r"needs a key .* in the field 'k', its input has"):
            task.output_schema(schema)


@pytest.mark.parametrize(
    "column",
    [pa.array([uuid.UUID(int=5).bytes] * 2, pa.uuid()), pa.array([1, 2], pa.bool8().storage_type).cast(pa.bool8())],
)
def test_extension_type_is_refused_by_name(column):
    with pytest.raises(ConfigError, match="the field 'k' is of type extension<arrow"):
        t.RunningCount(by="k").session().push_batch(pa.table({"k": column}))


def test_period_of_pandas_is_refused_by_name():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"k": pd.period_range("2024-05", periods=2, freq="M"), "v": [1.0, 2.0]})
    with pytest.raises(ConfigError, match=r"the field 'k' is of type extension<pandas\.period"):
        t.RunningCount(by="v").session().push_batch(frame)


def keyed_cases():
    for kind in registered_tasks():
        if not issubclass(kind, KeyedTask) or kind.code in HASHED:
            continue
        for i, case in enumerate(kind.cases()):
            read = [name for name, wanted in case.task.requires().items() if wanted == "key" and name != "seq"]
            others = {n for n, wanted in case.task.requires().items() if wanted != "key"}
            sketch = kind.code in ("DDP", "VBF") and getattr(case.task, "capacity", None)
            if read and case.batch.num_rows and not sketch:
                yield pytest.param(case, [n for n in read if n not in others], id=f"{kind.code}-{i}")


@pytest.mark.parametrize("dtype", [pa.binary(6), pa.date32(), pa.decimal128(12, 2)], ids=str)
@pytest.mark.parametrize(("case", "names"), keyed_cases())
def test_no_task_depends_on_the_type_of_its_key(case, names, dtype):
    """Whole numbers, and their images of another type in the same order, give the same results."""
    make = {
        pa.binary(6): lambda n: n.to_bytes(6, "big"),
        pa.date32(): lambda n: DAY + dt.timedelta(days=n),
        pa.decimal128(12, 2): lambda n: (Decimal(n) / 4).quantize(Decimal("0.01")),
    }[dtype]
    batch = case.batch if "seq" in case.batch.schema.names else with_row_numbers(case.batch)
    plain, other = batch, batch
    image = {None: None}
    for name in names:
        at = batch.schema.get_field_index(name)
        values = batch.column(name).to_pylist()
        order = {v: i for i, v in enumerate(sorted({repr(v) for v in values if v is not None}))}
        codes = [None if v is None else order[repr(v)] for v in values]
        image |= {i: make(i) for i in order.values()}
        plain = plain.set_column(at, pa.field(name, pa.int64()), pa.array(codes, pa.int64()))
        other = other.set_column(at, pa.field(name, dtype), pa.array([image[c] for c in codes], dtype))
    result = case.task.output_schema(other.schema)
    keys = [name for name in names if name in result.names and result.field(name).type == dtype]
    runs = []
    for given in (plain, other):
        session = case.task.session()
        rows = session.push_batch(given).to_pylist() + session.flush()
        for row in rows:
            for name in keys:
                if given is plain:
                    row[name] = image[row[name]]
        for row in rows:  # a hash of the key
            row.pop("ordinal_2", None)
        runs.append(sorted(map(repr, rows)))
    assert runs[0] == runs[1]

"""Records with numbers that a task would round, in every runner."""

from __future__ import annotations

import random
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from tests.simulated_query import SimulatedQuery


class Quotient(t.StatelessTask):
    """A task that computes in float64."""

    code = "QUO"

    def requires(self):
        return {"a": "number", "b": "number"}

    def output_schema(self, schema):
        self.check_input(schema)
        return schema.append(pa.field("x", pa.float64()))

    def apply(self, batch, rejects):
        a, b = (column.cast(pa.float64(), safe=False) for column in (batch["a"], batch["b"]))
        return batch.append_column("x", pc.divide(a, b))


BIG = 2**53 + 1
NUMBERS = [1, BIG, None, -BIG, 2**60, 7]
REJECTED = [1, 3]


def test_both_runners_reject_rounded_numbers_with_a_reason():
    flow = ro.Dataflow("exact")
    source = flow.source("numbers", pa.schema([("seq", pa.int64()), ("a", pa.int64()), ("b", pa.float64())]))
    tasks = {
        "stateless": Quotient(),
        "keyed": t.MovingAverage(value="a", output="x", window=2),
        "kept": t.ChangeDetector(fields="a", value="x"),
    }
    for name, task in tasks.items():
        flow.sink(f"{name}_sink", source.to(task, id=name))
    n = len(NUMBERS)
    table = pa.table({"seq": range(n), "a": pa.array(NUMBERS, pa.int64()), "b": [1.0] * n})
    staged = SimulatedQuery(flow, ro.MemorySource(table), random.Random(1), max_records=2)
    here = flow.run(table)
    for errors in (here.errors, staged["errors"]):
        found = sorted((e["task"], e["seq"], e["reason"], e["message"]) for e in errors.to_pylist())
        assert found == sorted(
            (task, seq, "out_of_range", "a has a number that float64 cannot hold")
            for task in ("keyed", "stateless")
            for seq in REJECTED
        )
    for found in (here["stateless"], staged["stateless"]):
        rows = found.sort_by("seq").select(["seq", "x"]).to_pylist()
        assert rows == [{"seq": i, "x": x} for i, x in ((0, 1.0), (2, None), (4, 2.0**60), (5, 7.0))]
    for found in (here["kept"], staged["kept"]):
        assert found["x"].to_pylist() == [BIG, -BIG, 2**60, 7], "a task that compares exactly rejects none"


def test_prediction_of_an_estimator_rejects_rounded_numbers():
    class Doubling:
        def predict(self, x):
            return 2 * x[:, 0]

    session = ro.predict(Doubling(), ("a",), output="x").session()
    out = session.push_batch(pa.record_batch({"a": pa.array([1, BIG, 2**60], pa.int64())}))
    assert out["x"].to_pylist() == [2.0, 2.0**61]
    assert [e["reason"] for e in session.errors] == ["out_of_range"]


@pytest.mark.parametrize(
    ("dtype", "bad", "good"),
    [
        (pa.int64(), [BIG, -BIG, 2**63 - 1], [2**53, -(2**53), 2**60, -(2**63), None]),
        (pa.uint64(), [BIG, 2**64 - 1], [2**53, 2**63]),
        (pa.decimal128(38, 0), [10**37 + 1], [10**22, -5]),
        (pa.decimal128(30, 10), [Decimal("1234567890.1234567891")], [Decimal("0.1"), Decimal("-7.25")]),
        (pa.decimal256(50, 0), [10**49 + 1], [3]),
    ],
    ids=str,
)
def test_session_rejects_exactly_the_numbers_that_are_no_float64(dtype, bad, good):
    session = Quotient().session()
    column = pa.array([*bad, *good], dtype)
    # rows before the slice, and its offset, do not count
    batch = pa.record_batch({"a": pa.concat_arrays([column, column]), "b": [1.0] * (2 * len(column))})
    out = session.push_batch(batch.slice(len(column)))
    assert out["x"].to_pylist() == [None if n is None else float(n) for n in good]
    assert [e["reason"] for e in session.errors] == ["out_of_range"] * len(bad)

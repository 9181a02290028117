"""Relative errors of predictions against a naive reference."""

import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import ConfigError
from riot_ops.tasks import EstimateError
from tests.reference.estimate_error import Errors

VALUES = st.one_of(st.none(), st.just(math.nan), st.sampled_from([0.0, -0.0, 5e-324, 1e308]), st.floats(-1e3, 1e3))
SCHEMA = pa.schema([("sensor_id", pa.string()), *((n, pa.float64()) for n in ("prediction", "observed", "average"))])


def event(sensor, prediction=None, observed=None, average=None):
    return {"sensor_id": sensor, "prediction": prediction, "observed": observed, "average": average}


def test_hand_computed_values():
    session = EstimateError().session()
    steps = [
        ((12.0, 10.0, None), 0.2),  # no average yet: relative to the reading
        ((None, None, 8.0), []),
        ((12.0, 10.0, None), 0.25),
        ((8.0, 10.0, None), 0.25),  # absolute value
        ((None, None, 0.0), []),
        ((12.0, 10.0, None), 0.2),
        ((1.0, 0.0, None), None),
        ((None, 5.0, None), None),
        ((3.0, 1.0, -4.0), 0.5),  # both at once
    ]
    for (p, o, avg), wanted in steps:
        out = session.push(event("a", p, o, avg))
        assert [r["error"] for r in out] == ([] if wanted == [] else [wanted])
    assert session.push(event("b", 3.0, 1.0))[0]["error"] == 2.0, "averages by key"


@given(st.lists(st.tuples(st.sampled_from("abü"), VALUES, VALUES, VALUES), max_size=60), st.integers(0, 60))
def test_equals_the_reference_for_any_split(rows, cut):
    task = EstimateError()
    session, got, averages = task.session(), [], []
    for part in (rows[:cut], rows[cut:]):
        batch = pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, r, strict=True)) for r in part], schema=SCHEMA)
        out = session.push_batch(batch)
        got += out.column("error").to_pylist()
        averages += out.column("average").to_pylist()
        again = task.session()
        again.restore(session.snapshot())
        session = again
    reference = Errors()
    wanted = [(e, reference.averages.get(row[0])) for row in rows for e in reference.push(*row)]
    assert list(zip(got, averages, strict=True)) == wanted


def test_infinite_values_are_errors():
    session = EstimateError().session()
    session.push(event("a", average=math.inf))
    session.push(event("a", -math.inf, 1.0))
    assert [e["reason"] for e in session.errors] == ["not_finite"] * 2
    assert session.push(event("a", 2.0, 1.0))[0]["error"] == 1.0


def test_fields_and_key_of_other_names():
    task = EstimateError(by=("room",), predicted="p", observed="o", average="avg", output="err")
    session = task.session()
    session.push({"room": 1, "p": None, "o": None, "avg": 8.0})
    rows = session.push_many([{"room": room, "p": 12.0, "o": 10.0, "avg": None} for room in (1, 2)])
    assert [(row["room"], row["avg"], row["err"]) for row in rows] == [(1, 8.0, 0.25), (2, None, 0.2)]
    assert task.writes() == {"avg", "err"}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"average": "observed"}, "must be different fields"),
        ({"output": None}, "output = None"),
        ({"output": "prediction"}, "must be different fields"),
    ],
)
def test_wrong_parameters_are_refused(wrong, message):
    with pytest.raises(ConfigError, match=message):
        EstimateError(**wrong)

"""Quartile labels against the definition and the specification's figures."""

import math
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import ConfigError
from riot_ops.dataflows.riotbench.operators import LabelQuartile
from tests.reference.label_quartile import label
from tests.samples import expected

LABELS = ("BAD", "GOOD", "VERYGOOD", "EXCELLENT")
VALUES = st.one_of(st.none(), st.just(math.nan), st.integers(-5, 5).map(float), st.floats(-1e6, 1e6))


def labelled(values, **options):
    return LabelQuartile(**options).session().push({"value": values})[0]["class"]


def test_labels_of_one_to_a_hundred():
    found = labelled([float(v) for v in range(1, 101)])
    assert found == [name for name in LABELS for _ in range(25)]


@given(st.lists(st.lists(VALUES, max_size=30), max_size=6))
def test_labels_equal_the_definition(lists):
    batch = pa.RecordBatch.from_pydict({"value": pa.array(lists, pa.list_(pa.float64()))})
    got = LabelQuartile().session().push_batch(batch).column("class").to_pylist()
    assert got == [label(values, LABELS) for values in lists]


def test_output_names_the_field():
    row = LabelQuartile(value="light", output="level").session().push({"light": [1.0, 2.0, 3.0, 4.0]})[0]
    assert row == {"light": [1.0, 2.0, 3.0, 4.0], "level": list(LABELS)}


def test_equal_values_get_the_lower_label():
    assert labelled([5.0] * 9) == ["BAD"] * 9
    assert labelled([1.0, 2.0, 2.0, 2.0, 2.0, 9.0]) == ["BAD", "GOOD", "GOOD", "GOOD", "GOOD", "EXCELLENT"]


def test_reverse_swaps_the_labels():
    assert labelled([4.0, 1.0, 3.0, 2.0], reverse=True) == ["BAD", "EXCELLENT", "GOOD", "VERYGOOD"]


def test_missing_values_have_null_labels_and_integers_are_accepted():
    assert labelled([1, 2, None, 3, 4]) == ["BAD", "GOOD", None, "VERYGOOD", "EXCELLENT"]
    assert labelled([]) == [] and labelled(None) is None


def test_huge_values_do_not_overflow():
    assert labelled([-1.7e308, 1.7e308, 0.0]) == ["BAD", "VERYGOOD", "GOOD"]
    assert labelled([-1.7e308, 1.7e308, 1.0, 0.0]) == ["BAD", "EXCELLENT", "VERYGOOD", "GOOD"]


def test_infinite_value_rejects_the_set():
    session = LabelQuartile().session()
    assert session.push({"value": [1.0, math.inf]}) == []
    assert session.errors[0]["reason"] == "not_finite"


def test_labels_equal_those_of_the_taxi_training_file(sample_data):
    lines = (sample_data / "riotbench" / "taxi-train-dtc.csv").read_text().split()
    fares = [float(line.split(",")[2]) for line in lines]
    found = labelled(fares)
    assert found == label(fares, LABELS)
    bounds = {name: (min(f for f, c in zip(fares, found, strict=True) if c == name)) for name in LABELS}
    assert bounds["BAD"] == expected(sample_data, made=3.0, papers=2.5)
    assert bounds["VERYGOOD"] > 9.5 and bounds["EXCELLENT"] > 16.5
    low, high = expected(sample_data, made=(75, 125), papers=(1000, 1400))
    assert all(low < n < high for n in Counter(found).values()), "about a quarter each, but for ties"


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.string()), pa.list_(pa.list_(pa.float64()))])
def test_inputs_other_than_lists_of_numbers_are_refused(kind):
    with pytest.raises(ConfigError, match="lists of numbers in the field 'value'"):
        LabelQuartile().output_schema(pa.schema([("value", kind)]))


def test_labels_must_be_four():
    with pytest.raises(ConfigError, match="classes must be 4 labels"):
        LabelQuartile(classes=("low", "high"))

"""Fraud detection, against a naive reference and the figures of the specification."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import fraud_detection
from riot_ops.models.markov import purchase_model
from riot_ops.streams import replay
from tests.reference.dspbench.fraud_detection import fraud_detection as reference
from tests.reference.dspbench.fraud_detection import read_model
from tests.samples import expected
from tests.simulated_query import SimulatedQuery

MODEL, CARDS = "dspbench/fraud-markov-model.txt", "dspbench/synthetic/credit-card.csv"
lines = st.lists(
    st.builds(
        "{},{},{}".format, st.sampled_from(["a", "b", "ü", ""]), st.sampled_from(["T", "HHS"]),
        st.sampled_from(["MNN", "HHS", "LHN", "HNL", "", "XXX", "MHS"]),
    ) | st.sampled_from(["", "a", "a,b", "a,T,MNN,more"]),
    max_size=40,
)  # fmt: skip


def table(texts):
    return pa.table(
        {"event_time": pa.nulls(len(texts), pa.timestamp("us", "UTC")), "payload": [t.encode() for t in texts]}
    )


def found(outliers):
    return [(r["seq"], r["entity_id"], r["score"], r["states"]) for r in outliers.to_pylist()]


def assert_same(rows, wanted):
    assert [r[:2] + r[3:] for r in rows] == [r[:2] + r[3:] for r in wanted]
    assert [r[2] for r in rows] == pytest.approx([r[2] for r in wanted], abs=1e-12)


def places(errors):
    return sorted((row["seq"], row["reason"]) for row in errors.to_pylist())


@given(
    lines, st.sampled_from(["miss_probability", "miss_rate", "entropy_reduction"]), st.integers(2, 4), st.booleans(),
    st.integers(1, 7),
)  # fmt: skip
def test_results_equal_the_reference(texts, metric, window, local, batch_size):
    model = purchase_model()
    threshold = 0.855  # no score of any metric is close to it
    flow = fraud_detection(metric=metric, window=window, scope="window" if local else "all", threshold=threshold)
    result = flow.run(table(texts), batch_size=batch_size)
    wanted, bad = reference(
        texts, list(model.states), model.matrix.tolist(), metric=metric, window=window, local=local, threshold=threshold
    )
    assert_same(found(result["outliers"]), wanted)
    assert places(result.errors) == bad


@given(lines, st.integers(0, 1 << 32))
def test_staged_results_are_equal(texts, seed):
    choose, model = random.Random(seed), purchase_model()
    staged = SimulatedQuery(
        fraud_detection(window=2, threshold=0.9), ro.MemorySource(table(texts)), choose, max_records=5,
        partitions=choose.choice([1, 3]),
    )  # fmt: skip
    wanted, bad = reference(texts, list(model.states), model.matrix.tolist(), window=2, threshold=0.9)
    assert_same(sorted(found(staged["outliers"])), wanted)
    assert places(staged["errors"]) == bad


@pytest.mark.parametrize("staged", [False, True])
def test_cards_of_the_specification(sample_data, staged):
    source, flow = replay(sample_data / CARDS), fraud_detection(model=str(sample_data / MODEL))
    outliers = (SimulatedQuery(flow, source, random.Random(1)) if staged else flow.run(source))["outliers"]
    first = outliers.sort_by("seq").to_pylist()[0]
    found_customers = (outliers.num_rows, len(set(outliers["entity_id"].to_pylist())))
    assert found_customers == expected(sample_data, made=(40, 8), papers=(90, 21))
    assert (first["entity_id"], first["states"]) == expected(
        sample_data, made=("ZMQZW0YLV1", "HHL,HHN,LHS,MHS,HHN"), papers=("7M7QPMQL4L", "MHS,MHS,MHS,HHN,MHS")
    )
    assert first["score"] == pytest.approx(expected(sample_data, made=0.99058943, papers=0.98506949), abs=5e-9)
    texts = (sample_data / CARDS).read_text().splitlines()
    assert_same(sorted(found(outliers)), reference(texts, *read_model(sample_data / MODEL))[0])


def test_options_of_the_specification(sample_data):
    def outliers(**options):
        result = fraud_detection(model=str(sample_data / MODEL), **options).run(replay(sample_data / CARDS))
        return result["outliers"]["entity_id"].to_pylist()

    dear = outliers(threshold=0.98)
    assert (len(dear), len(set(dear))) == expected(sample_data, made=(37, 5), papers=(73, 7))
    assert len(outliers(metric="miss_rate")) == expected(sample_data, made=130, papers=1000)
    texts = (sample_data / CARDS).read_text().splitlines()
    wanted = reference(texts, *read_model(sample_data / MODEL), local=False)[0]
    assert outliers(scope="all") == [row[1] for row in wanted]
    assert wanted


def test_state_may_be_in_another_cell():
    rows = fraud_detection(column=0, window=2, threshold=0).run(table(["a,HHS", "a,MNN"]))["outliers"]
    assert rows["states"].to_pylist() == ["HHS,MNN"]
    with pytest.raises(ConfigError, match="column = -1: Expected `int` >= 0"):
        fraud_detection(column=-1)
    with pytest.raises(ConfigError, match="column = 65535: Expected `int` <= 65534"):
        fraud_detection(column=65_535)


def test_restarted_run_continues(tmp_path):
    states = ["MNN", "HHS", "HHN", "LHS", "MHS", "HHS", "HHL", "MNN"]
    texts = [f"{who},T{i},{state}" for i, state in enumerate(states) for who in "ab"]
    flow = fraud_detection(window=3, threshold=0.5)
    whole = found(flow.run(table(texts))["outliers"])
    head, tail = (fraud_detection(window=3, threshold=0.5) for _ in range(2))
    kept = {"checkpoint": tmp_path / "checkpoint", "out": tmp_path / "out"}
    head.run(ro.MemorySource(table(texts[:7])), **kept)
    assert found(tail.run(ro.MemorySource(table(texts)), **kept)["outliers"]) == whole

"""Scores by a Markov chain, against the figures of the specification and a naive reference."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.dspbench.operators import MarkovScore
from riot_ops.models import MarkovModel
from riot_ops.models.markov import purchase_model
from tests.reference.dspbench.fraud_detection import read_model, score
from tests.samples import MADE

METRICS = ("miss_probability", "miss_rate", "entropy_reduction")


@pytest.mark.parametrize(
    ("chain", "wanted"),
    [
        ("MNN MNN MNN MNN MNN", (0.7941883, 0.0, 0.8661890)),
        ("LNL MNN MNN MNL LNN", (0.8245913, 0.5, 0.8754090)),
        ("HHS HHS HHS HHS HHS", (0.9957983, 1.0, 0.9908974)),
        ("LHS HHS HHL MHS LHS", (0.9884962, 1.0, 0.9795674)),
        ("HHN LHS MHS HHS HHL", (0.9919510, 1.0, 0.9844944)),
    ],
)
def test_scores_of_the_specification(sample_data, chain, wanted):
    path = sample_data / "dspbench" / "fraud-markov-model.txt"
    for metric, value in zip(METRICS, wanted, strict=True):
        session = MarkovScore(model=str(path), metric=metric).session()
        rows = session.push_many({"state": state} for state in chain.split())
        assert [row["states"] for row in rows] == [chain.replace(" ", ",")]
        by_hand = score(chain.split(), *read_model(path), metric)
        assert rows[0]["score"] == pytest.approx(by_hand, abs=6e-8)
        if sample_data != MADE:
            assert by_hand == pytest.approx(value, abs=6e-8)


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(2, 6), st.sampled_from(METRICS), st.booleans())
def test_scored_windows_slide_by_one_record(chain, window, metric, local):
    names, matrix = ["a", "b", "c"], [[0.5, 0.25, 0.25], [0.0, 1.0, 0.0], [0.3, 0.3, 0.4]]
    task = MarkovScore(metric=metric, window=window, scope="window" if local else "all")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "riot_ops.dataflows.dspbench.operators.markov_score.purchase_model", lambda: MarkovModel(names, matrix)
        )
        rows = task.session().push_many({"state": s} for s in chain)
    least = window if local else 2
    wanted = [chain[max(0, i - window) if local else 0 : i] for i in range(least, len(chain) + 1)]
    assert [row["states"] for row in rows] == [",".join(one[-window:]) for one in wanted]
    assert [row["score"] for row in rows] == pytest.approx([score(one, names, matrix, metric) for one in wanted])


def test_no_error_builds_up():
    rng = np.random.default_rng(3)
    names = purchase_model().states
    chain = pa.array(names).take(pa.array(rng.integers(0, 18, 200_000)))
    rows = MarkovScore(window=50, states=None).session().push_batch(pa.table({"state": chain}))
    places = [names.index(s) for s in chain[-50:].to_pylist()]
    exact = math.fsum(1 - purchase_model().matrix[a, b] for a, b in itertools.pairwise(places)) / 49
    assert rows["score"][-1].as_py() == pytest.approx(exact, rel=4e-16)


def test_score_equal_to_the_threshold_is_not_emitted():
    def scores(threshold):
        task = MarkovScore(metric="miss_rate", window=3, threshold=threshold, output="miss", states="chain")
        return task.session().push_many({"state": s} for s in ("MNN", "MNN", "HHS"))

    assert scores(0.49) == [{"state": "HHS", "miss": 0.5, "chain": "MNN,MNN,HHS"}]
    assert scores(0.5) == []


def test_unknown_states_are_errors_and_do_not_enter_the_window():
    session = MarkovScore(window=2, by="card", states=None, state="s").session()
    rows = session.push_many({"card": c, "s": s} for c, s in [("a", "MNN"), ("a", "?"), ("b", None), ("a", "MNN")])
    assert len(rows) == 1
    assert [(e["reason"], e["message"]) for e in session.errors] == [
        ("unknown_state", "the model has no such s"),
        ("missing", "s is null"),
    ]


def test_models_of_many_states(tmp_path):
    n = 300
    names = [f"s{i}" for i in range(n)]
    path = tmp_path / "model.txt"
    path.write_text(MarkovModel(names, np.full((n, n), 1 / n)).to_text())
    rows = MarkovScore(model=str(path), window=2).session().push_many({"state": s} for s in ("s299", "s0", "s299"))
    assert [(row["states"], round(row["score"], 6)) for row in rows] == [
        ("s299,s0", round(1 - 1 / n, 6)), ("s0,s299", round(1 - 1 / n, 6)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1 states need as many rows"),
        (",b\n0.5,0.5\n0.5,0.5", "states must be different names"),
        ("a,a\n0.5,0.5\n0.5,0.5", "states must be different names"),
        ("a,b\n0.5,0.5", "2 states need as many rows and columns"),
        ("a,b\n0.5,0.5\n1", "2 states need as many rows and columns"),
        ("a,b\n0.5,0.5\n1,x", "must be numbers"),
        ("a,b\n0.5,0.5\n0.5,0.6", "the row of the state 'b' must be probabilities"),
        ("a,b\n1.5,-0.5\n0.5,0.5", "the row of the state 'a' must be probabilities"),
        ("a,b\nnan,1\n0.5,0.5", "the row of the state 'a' must be probabilities"),
    ],
)
def test_invalid_models_are_refused(tmp_path, text, message):
    path = tmp_path / "model.txt"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        MarkovScore(model=str(path))


def test_misuse_is_refused(tmp_path):
    for wrong, message in (
        ({"window": 1}, "window"),
        ({"metric": "miss"}, "metric"),
        ({"scope": "local"}, "scope"),
        ({"output": "states"}, "must be different fields"),
        ({"model": str(tmp_path / "none")}, "cannot be read"),
    ):
        with pytest.raises(ConfigError, match=message):
            MarkovScore(**wrong)
    with pytest.raises(ConfigError, match="must have 2 rows and columns"):
        MarkovModel(("a", "b"), np.ones((1, 1)))

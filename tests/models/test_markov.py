"""Markov models: training, the text form, and the default model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from riot_ops.core.errors import ConfigError
from riot_ops.models import MarkovModel
from riot_ops.models.markov import PURCHASE_SHARES, purchase_model


def test_training_counts_transitions_by_chain():
    model = MarkovModel.train(list("abc"), [1, 2, 1, 2, 1, 1], list("abbcaa"))
    # chain 1: a b a a, chain 2: b c; each row has a zero, so all of its counts are incremented
    assert model.matrix * [[5], [5], [3]] == pytest.approx(np.array([[2, 2, 1], [2, 1, 2], [1, 1, 1]]))
    again = MarkovModel.from_text(model.to_text() + "\n")
    assert (again.states, again.matrix.tolist()) == (model.states, model.matrix.tolist())
    with pytest.raises(ConfigError, match="seen has the state 'd', the model a, b, c"):
        MarkovModel.train(list("abc"), [1], ["d"])


def test_rows_without_zero_counts_are_not_incremented():
    model = MarkovModel.train(list("ab"), [0] * 6, list("aabbab"))
    assert model.matrix.tolist() == [[1 / 3, 2 / 3], [0.5, 0.5]]


def test_default_model_has_the_shares_of_purchases():
    model = purchase_model()
    assert len(model.states) == 18
    for i, name in enumerate(model.states):
        share = math.prod(shares[letter] for shares, letter in zip(PURCHASE_SHARES, name, strict=True))
        assert model.matrix[:, i].mean() == pytest.approx(share, rel=0.2)
    assert model.states[int(model.matrix[0].argmax())] == "MNN"


@given(
    st.lists(
        st.text(st.characters(exclude_characters=",\r\n"), min_size=1), min_size=1, max_size=4, unique=True
    ).filter(lambda names: all(name == name.strip() for name in names))
)
@example(["a\u2028b", "c\x85d"])
def test_text_of_a_model_is_read_back(names):
    model = MarkovModel(tuple(names), np.full((len(names), len(names)), 1 / len(names)))
    again = MarkovModel.from_text(model.to_text())
    assert (again.states, again.matrix.tolist()) == (model.states, model.matrix.tolist())


@pytest.mark.parametrize("name", ["a,b", "a\nb", "a\rb", " a", "a\u2003", ""])
def test_names_with_separators_are_refused(name):
    with pytest.raises(ConfigError, match="states must be different names without commas, line breaks and blanks"):
        MarkovModel((name, "z"), [[0.5, 0.5]] * 2)

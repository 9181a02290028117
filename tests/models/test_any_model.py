"""Decoding models of any kind: damaged and invalid JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops import ConfigError, ModelError
from riot_ops.models import model_from_bytes
from tests.models.samples import linear, stump


def invalid_models():
    """Texts that are not models, each with a part of the error message."""
    linear_, tree = json.loads(linear().to_json()), json.loads(stump().to_json())
    yield b"", "damaged"
    yield b"\x80\x04\x95 pickle", "damaged"
    yield linear().to_bytes()[:-9], "damaged"
    yield b"[" * 100_000, "damaged"
    yield b"\xff\xfe", "damaged"
    yield b'"text"', "damaged"
    yield b"null", "damaged"
    changes = [
        (linear_, {"kind": "SVM"}, "SVM"),
        (linear_, {"kind": None}, "kind"),
        (linear_, {"format": "riot_ops.model/2"}, "riot_ops.model/2"),
        (linear_, {"more": 1}, "more"),
        (linear_, {"inputs": []}, "inputs"),
        (linear_, {"inputs": ["x", "x"]}, "different names"),
        (linear_, {"inputs": ["x", "y"]}, "among the inputs"),
        (linear_, {"coefficients": [1.0]}, "1 coefficients for 2 inputs"),
        (linear_, {"coefficients": [1.0, None]}, "null"),
        (linear_, {"coefficients": [1.0, "2"]}, "str"),
        (linear_, {"intercept": 10**400}, "range"),
        (linear_, {"rows": -1}, "rows = -1"),
        (linear_, {"start_ms": 9, "end_ms": 1}, "start_ms = 9"),
        (linear_, {"metrics": {"rmse": None}}, "metrics"),
        (tree, {"left": []}, "nodes"),
        (tree, {"left": [0, -1, -1]}, "children"),
        (tree, {"left": [1, 0, -1], "right": [2, 0, -1]}, "children"),
        (tree, {"right": [3, -1, -1]}, "children"),
        (tree, {"right": [-1, -1, -1]}, "children"),
        (tree, {"right": [2**70, -1, -1]}, "damaged"),
        (tree, {"feature": [1, 0, 0]}, "tests an input"),
        (tree, {"feature": [-2, 0, 0]}, "tests an input"),
        (tree, {"feature": [0, 0]}, "entries in feature"),
        (tree, {"threshold": [None, 0.0, 0.0]}, "null"),
        (tree, {"classes": []}, "classes"),
        (tree, {"classes": ["a", "a"]}, "classes"),
        (tree, {"classes": ["a"]}, "share"),
        (tree, {"value": [[0.5, 0.5], [2.0, -1.0], [0.0, 1.0]]}, ">= 0"),
        (tree, {"value": [[0.5, 0.5], [0.0, 0.0], [0.0, 1.0]]}, "sum to 1"),
        (tree, {"kind": "MLR"}, "damaged"),
    ]
    for base, change, text in changes:
        yield json.dumps(base | change).encode(), text
    for name in ("inputs", "target", "coefficients", "intercept"):
        yield json.dumps({k: v for k, v in linear_.items() if k != name}).encode(), name
    yield linear().to_bytes().replace(b"0.5", b"NaN"), "damaged"
    yield linear().to_bytes().replace(b"0.5", b"1e999"), "range"


@pytest.mark.parametrize(
    ("data", "text"), list(invalid_models()), ids=lambda v: str(v)[:60] if isinstance(v, str) else ""
)
def test_invalid_models_are_refused_with_the_reason(data, text):
    with pytest.raises(ModelError, match=text) as caught:
        model_from_bytes(data, " m.model")
    assert "m.model" in str(caught.value)
    assert not isinstance(caught.value, ConfigError)


@given(st.data())
def test_any_damage_gives_a_model_or_a_model_error(data):
    text = bytearray(data.draw(st.sampled_from([linear().to_bytes(), stump().to_bytes()])))
    for _ in range(data.draw(st.integers(1, 3))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(0, 255))
    try:
        model = model_from_bytes(bytes(text))
    except ModelError:
        return
    model.predict(np.zeros((2, len(model.inputs))))

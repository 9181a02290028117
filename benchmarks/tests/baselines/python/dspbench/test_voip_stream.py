"""Baseline of VoIP stream in plain Python, against a call at a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from riot_bench.baselines.python.dspbench.voip_stream import voip_stream as baseline

from tests.dataflows.dspbench.test_voip_stream import OPTIONS, files, lively, same
from tests.reference.dspbench.voip_stream import voip_stream as reference


@given(files)
def test_baseline_equals_the_reference(lines):
    rows = baseline({"calls": [line.encode() for line in lines]})["scores"]
    same([(0, *row) for row in rows], [(0, *row[1:]) for row in reference(lines)[0]])


@pytest.mark.parametrize("option", OPTIONS, ids=",".join)
def test_options_reach_the_baseline(option):
    lines = lively(40)
    wanted, _, _ = reference(lines, **option)
    rows = baseline({"calls": [line.encode() for line in lines]}, **option)["scores"]
    same([(0, *row) for row in rows], [(0, *row[1:]) for row in wanted])

"""The settings of a run where memory is scarce."""

from __future__ import annotations

import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.backoff import MAX_SECONDS
from riot_ops.core.errors import ConfigError
from riot_ops.kernels.changeover import CHANGEOVER
from riot_ops.runtime import local


def dataflow():
    flow = ro.Dataflow("small")
    flow.sink("sink", flow.source("in", schema={"value": "double"}).to(t.NoOp(), id="out"))
    return flow


@pytest.fixture
def seen(monkeypatch):
    """What a run retains, its cores and the longest pause of its reader."""
    found = {"retained": False, "cores": None, "pause": None}
    make, reader = local.create_engine, local.Reader
    monkeypatch.setattr(CHANGEOVER, "patient", False)
    monkeypatch.setattr(local, "retain_freed_memory", lambda _batches: found.update(retained=True))
    monkeypatch.setattr(local, "create_engine", lambda *args: (found.update(cores=args[3]), make(*args))[1])
    monkeypatch.setattr(local, "Reader", lambda *args: (found.update(pause=args[5]), reader(*args))[1])
    return found


RECORDS = pa.table({"value": [float(i) for i in range(5000)]})


def test_small_memory_takes_one_core_small_batches_and_retains_nothing(seen):
    result = dataflow().run(RECORDS, memory="small")
    assert result["out"].num_rows == 5000
    assert result.summary.batches >= 5
    assert result.summary.buffered <= 256 << 10
    assert seen == {"retained": False, "cores": 1, "pause": 0.1}
    assert CHANGEOVER.patient


def test_given_settings_take_precedence(seen):
    result = dataflow().run(RECORDS, memory="small", cores=2, batch_size=5000, buffering="throughput")
    assert result["out"].num_rows == 5000
    assert result.summary.batches == 1
    assert seen["cores"] == 2


def test_normal_memory_is_retained(seen):
    result = dataflow().run(RECORDS, cores=1)
    assert result.summary.batches == 1
    assert seen == {"retained": True, "cores": 1, "pause": MAX_SECONDS}
    assert not CHANGEOVER.patient


@pytest.mark.parametrize("memory", ["tiny", None, 1])
def test_other_memory_is_refused(memory):
    with pytest.raises(ConfigError, match=f"memory must be 'normal' or 'small', got {memory!r}"):
        dataflow().run(RECORDS, memory=memory)

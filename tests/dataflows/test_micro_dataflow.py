"""Every registered task runs between a source and a sink."""

from __future__ import annotations

import pytest
from riot_bench.harness.data import Discard

from riot_ops import dataflows
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.dataflows.riotbench.micro import micro, micro_source
from riot_ops.task import tasks

CODES = [kind.code for kind in tasks()]


#: Tasks that reject some of their example's records when these come again and again, each a message of its own: some want
#: numbers that may be missing, a header line first, or all parts of a message, and others find earlier times late.
SOME_REJECTED = {"BAY", "BOL", "BSM", "CDT", "DCS", "KFN", "PDL", "PTB", "RDR", "SLW", "TPK", "TRD"}


@pytest.mark.parametrize("code", CODES)
def test_every_task_accepts_its_input(code: str) -> None:
    flow = dataflows.micro(code)
    assert [n.kind for n in flow.nodes.values()] == ["source", "task", "sink"]
    summary = flow.run(micro_source(code, messages=300), sinks=Discard()).summary
    assert summary.messages >= 300
    if code not in SOME_REJECTED:
        assert summary.errors == 0


def test_parameters_of_ones_own() -> None:
    task = t.KalmanFilter(by=("sensor_id",), process_noise=1.0)
    flow = micro("KAL", task)
    assert flow.nodes["kalman_filter"].task == task
    assert flow.run(micro_source("KAL", messages=10)).summary.rows == {"kalman_filter": 10}


def test_half_of_the_input_passes_the_bloom_filter() -> None:
    rows = micro("BLF").run(micro_source("BLF", messages=5000), sinks=Discard()).summary.rows
    assert 2000 < rows["check_bloom_filter"] < 3000


def test_a_join_completes_every_message() -> None:
    rows = micro("JON").run(micro_source("JON", messages=1000), sinks=Discard()).summary.rows
    assert rows == {"join": 1000}


def test_unknown_code() -> None:
    with pytest.raises(ConfigError, match="unknown task 'KALL'"):
        micro("KALL")

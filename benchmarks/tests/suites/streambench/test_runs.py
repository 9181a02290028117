"""Runs of implementations, and the check of their results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from riot_bench.harness.digest import digest
from riot_bench.harness.numbered_lines import NumberedLines
from riot_bench.suites.streambench import runs
from riot_bench.suites.streambench.programs import PROGRAMS, final_results
from riot_bench.suites.streambench.runs import check_implementations, run_in_process

from riot_ops.core.errors import RiotError
from riot_ops.dataflows import application


@pytest.mark.parametrize("name", PROGRAMS)
def test_implementations_in_process_have_equal_results(name: str, lines: dict[str, NumberedLines]) -> None:
    found = check_implementations(name, lines[application(name).inputs["lines"]])
    assert not found.startswith("0-")


def test_differing_implementations_are_refused(
    lines: dict[str, NumberedLines], monkeypatch: pytest.MonkeyPatch
) -> None:
    for implementation in ("loop", "numpy"):
        with monkeypatch.context() as patch:
            baseline = runs._run_baseline

            def one_less(
                name: str,
                which: str,
                data: NumberedLines,
                implementation: str = implementation,
                baseline: Any = baseline,
            ) -> Any:
                return baseline(name, which, data.first_batches(2 if which == implementation else 3))

            patch.setattr(runs, "_run_baseline", one_less)
            with pytest.raises(
                RiotError, match=r"the implementations of grep have different results: .*'numpy'.*'loop'"
            ):
                check_implementations("grep", lines["searches"])


def test_results_are_checked_with_the_measured_state_store(
    lines: dict[str, NumberedLines], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Conf(dict[str, str]):
        set = dict.__setitem__

    spark = SimpleNamespace(conf=Conf({runs.STORE_PROVIDER: "the session's"}))
    result = runs.program_flow("wordcount").run(lines["searches"].source())["counts"].to_pylist()
    stores: dict[bool, set[str]] = {}

    def collected(_: Any, implementation: Any, __: Path) -> Any:
        stores.setdefault(implementation.python, set()).add(spark.conf[runs.STORE_PROVIDER])
        return result

    monkeypatch.setattr(runs, "_packed_results", lambda *_: final_results("wordcount", result))
    monkeypatch.setattr(runs, "collect_rows", collected)
    monkeypatch.setattr(NumberedLines, "frame", lambda *_, **__: None)
    known = runs.find_implementations("wordcount")
    fakes = {name: replace(implementation, build=lambda _: None) for name, implementation in known.items()}
    monkeypatch.setattr(runs, "find_implementations", lambda _: fakes)
    assert check_implementations("wordcount", lines["searches"], spark) == digest(final_results("wordcount", result))
    assert stores == {False: {runs.IN_MEMORY_STORE}, True: {"the session's"}}
    assert spark.conf[runs.STORE_PROVIDER] == "the session's"


def test_run_in_process(lines: dict[str, NumberedLines]) -> None:
    run = run_in_process("wordcount", "local", lines["searches"], 2)
    assert (len(run.spent), run.lines, len(run.latency_s)) == (2, 1_200, 2)
    assert all(0 < a < 10 for a in (*run.spent, *run.latency_s))


@pytest.mark.parametrize("implementation", ["numpy", "loop"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_batches_of_other_implementations_are_timed(
    name: str, implementation: str, lines: dict[str, NumberedLines]
) -> None:
    run = run_in_process(name, implementation, lines[application(name).inputs["lines"]], 2)
    assert len(run.latency_s) == 2
    assert all(0 < latency < spent for latency, spent in zip(run.latency_s, run.spent, strict=True))


def test_batch_times_are_weighted_by_records(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(runs.time, "perf_counter", lambda: now[0])
    batches = runs.BatchTimer()
    for batch in batches(["a" * 30, "b" * 10]):
        now[0] += 1.0 if batch[0] == "a" else 5.0
    assert batches.mean == (30 * 1.0 + 10 * 5.0) / 40

"""Programs on other engines: their results are those of riot_ops, and engines that are not there have no rows."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from riot_bench.baselines.engines import programs, riot_ops_engine
from riot_bench.baselines.engines.programs import Checksum, RowCounter
from riot_bench.suites import engines, registry
from riot_bench.suites.engines import PROGRAMS, find_engines, run_on_engine

from benchmarks.tests import plain_engine
from riot_ops.core.errors import ConfigError, RiotError


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with the engine of the tests, which is this one."""
    python = tmp_path / "ü" / "plain" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("RIOT_OPS_ENGINES", str(tmp_path / "ü"))
    monkeypatch.setattr(engines, "ENGINES", {"plain": "benchmarks.tests.plain_engine", "none": "x"})
    monkeypatch.setattr(engines, "PACKAGES", {"plain": "json"})
    return python


def test_checksum_covers_rows_and_their_number() -> None:
    rows = [("a", 1, 0.5), ("b", 2, 0.25), ("b", 2, 0.25)]
    assert Checksum.of(rows).like(Checksum.of(rows[::-1]))
    near = [*rows[:2], ("b", 2, 0.25 + 1e-12)]
    assert Checksum.of(rows).like(Checksum.of(near))
    swapped = [[("a", 1, 0.25), ("b", 2, 0.5), ("b", 2, 0.25)]]
    assert not Checksum.of([("a", 0.5, 0.25)]).like(Checksum.of([("a", 0.25, 0.5)]))
    changed = [("b", 3, 0.25)], [("b", 2, 0.2501)], [("b", 2, 1)]
    for other in (rows[:2], [], *swapped, *([*rows[:2], *one] for one in changed)):
        assert not Checksum.of(rows).like(Checksum.of(other))


@pytest.mark.parametrize("program", PROGRAMS)
def test_engine_programs_equal_riot_ops(program: str, tmp_path: Path) -> None:
    files = [str(path) for path in engines._write_input(program, tmp_path, 2000)]
    ours, counted, plain = Checksum(), RowCounter(), Checksum()
    for build, into in ((riot_ops_engine.build, ours), (riot_ops_engine.build, counted), (plain_engine.build, plain)):
        build(program, files, into)()
    assert ours.count == counted.count > 0
    assert plain.like(ours)


def test_start_up_and_checksum_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    for clock in ("perf_counter", "process_time"):
        monkeypatch.setattr(programs.time, clock, lambda: now[0])
    taken: list[type[RowCounter]] = []

    def build(name: str, files: list[str], into: RowCounter) -> Callable[[], None]:
        now[0] += 1000.0

        def run() -> None:
            now[0] += 2.0 if taken else 100.0
            taken.append(type(into))
            for row in ((name, 1), *((file, 2) for file in files)):
                into.add(row)

        return run

    found, seconds, cpu_seconds = programs.run_timed(build, "wc", ["a", "b"])
    assert (seconds, cpu_seconds) == (2.0, 2.0)
    assert taken == [Checksum, RowCounter]
    assert found == Checksum.of([("wc", 1), ("a", 2), ("b", 2)])


def test_differing_second_run_is_an_error() -> None:
    """For example of an engine that runs its first program again."""
    built: list[RowCounter] = []

    def build(name: str, files: list[str], into: RowCounter) -> Callable[[], None]:
        built.append(into)
        return lambda: [built[-1].add((name,)) for _ in built] and None

    with pytest.raises(RuntimeError, match="the second run has 2 results, the first had 1"):
        programs.run_timed(build, "wc", [])


def test_installed_engines_have_rows(there: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert find_engines() == {"plain": there}
    files = engines._write_input("wc", tmp_path, 1000)
    found = {m.measure: m for m in engines._compare_engines("engines/wc", "wc", files, 1000, 2)}
    assert list(found) == ["engines/wc/riot_ops", "engines/wc/plain", "engines/wc/vs-plain"]
    assert all(len(m.values) == 2 and m.value > 0 for m in found.values())
    (figure,) = engines.EXPERIMENTS[0].figures
    assert [(s, x) for s, x, _ in figure.points(found.values())] == [("riot_ops", "wc"), ("plain", "wc")]
    monkeypatch.setattr(engines, "ENGINES", {"plain": "benchmarks.tests.plain_engine_wrong"})
    with pytest.raises(RiotError, match="the results of wc differ on plain"):
        list(engines._compare_engines("engines/wc", "wc", files, 1000, 1))
    monkeypatch.setattr(engines, "ENGINES", {"plain": "benchmarks.tests.no_engine"})
    with pytest.raises(RiotError, match=r"plain failed with wc: .*no_engine"):
        run_on_engine(there, "plain", "wc", files)


def test_environment_without_its_engine_is_skipped(
    there: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As pip leaves it where there is no network."""
    monkeypatch.setattr(engines, "PACKAGES", {"plain": "no_such_engine"})
    assert find_engines() == {}
    assert "plain is left out: its package is not in" in caplog.text


def test_engine_environment_has_riot_ops_alone(there: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    beside = tmp_path / "site"
    beside.mkdir()
    (beside / "riot_ops").symlink_to(Path(engines.riot_ops.__file__).parent)
    monkeypatch.setattr(engines.riot_ops, "__file__", str(beside / "riot_ops" / "__init__.py"))
    seen: list[list[str]] = []

    def run(command: list[str], env: dict[str, str], **_: object) -> SimpleNamespace:
        own = env["PYTHONPATH"].partition(os.pathsep)[0]
        seen.append(sorted(path.name for path in Path(own).iterdir()))
        return SimpleNamespace(returncode=0, stdout='{"count": 1, "exact": 1, "total": 1, "seconds": 1}')

    monkeypatch.setattr(engines.subprocess, "run", run)
    (beside / "numpy").mkdir()
    for engine in ("plain", "riot_ops"):
        run_on_engine(there, engine, "wc", [])
    assert seen == [["riot_bench", "riot_ops"], ["numpy", "riot_ops"]]


def test_sides_are_timed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Path, str]] = []

    def on(python: Path, engine: str, program: str, files: list[Path]) -> tuple[Checksum, float]:
        asked.append((python, engine))
        return Checksum(7, 1, 0.5), 2.0 if engine == "riot_ops" else 10.0

    monkeypatch.setattr(engines, "run_on_engine", on)
    monkeypatch.setattr(engines, "find_engines", lambda: {"flink": Path("/flink")})
    ours, theirs, ratio = engines._compare_engines("engines/wc", "wc", [], 1000, 2)
    assert asked == [(Path(sys.executable), "riot_ops"), (Path("/flink"), "flink")] * 2
    assert (ours.values, theirs.values, ratio.values) == ((500.0, 500.0), (100.0, 100.0), (5.0, 5.0))
    included = ["start of its cluster" in one.against for one in (ours, theirs, ratio)]
    assert included == [False, True, True]


def test_engines_have_programs_and_requirements() -> None:
    script = (Path(__file__).resolve().parents[3] / "tools" / "baseline_engines.sh").read_text(encoding="utf-8")
    assert (
        [*engines.ENGINES]
        == ["bytewax", "flink", "pathway"]
        == sorted(re.findall(r"^    (\w+)\) package=", script, re.M))
    )
    modules = (engines.RIOT_OPS_ENGINE, *engines.ENGINES.values())
    assert all(callable(importlib.import_module(module).build) for module in modules)


def test_missing_engines_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIOT_OPS_ENGINES", str(tmp_path))
    monkeypatch.setattr(engines, "QUICK", (200, 1))
    found = [m.measure for m in registry.find_suite("engines")(quick=True, program=["fd"])]
    assert found == ["engines/fd/riot_ops"]
    with pytest.raises(ConfigError, match="--program must be one of wc, fd, stats, got 'x'"):
        next(registry.find_suite("engines")(program=["x"]))

"""Programs on other engines: their results are those of riot_ops, and engines that are not there have no rows."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from riot_ops.bench import engines, registry
from riot_ops.bench.engines import PROGRAMS, checksum, environments, on_engine
from riot_ops.bench.opponents.engines import programs
from riot_ops.bench.opponents.engines.programs import Checksum
from riot_ops.core.errors import ConfigError, RiotError
from tests.bench import plain_engine


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment with the engine of the tests, which is this one."""
    python = tmp_path / "ü" / "plain" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv("RIOT_OPS_ENGINES", str(tmp_path / "ü"))
    monkeypatch.setattr(engines, "ENGINES", {"plain": "tests.bench.plain_engine", "none": "x"})
    return python


def test_a_checksum_knows_rows_and_their_number() -> None:
    rows = [("a", 1, 0.5), ("b", 2, 0.25), ("b", 2, 0.25)]
    assert Checksum.of(rows).like(Checksum.of(rows[::-1]))
    near = [*rows[:2], ("b", 2, 0.25 + 1e-12)]
    assert Checksum.of(rows).like(Checksum.of(near))
    for other in (rows[:2], [*rows[:2], ("b", 3, 0.25)], [*rows[:2], ("b", 2, 0.2501)], [*rows[:2], ("b", 2, 1)], []):
        assert not Checksum.of(rows).like(Checksum.of(other))


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_come_to_what_riot_ops_comes_to(program: str, tmp_path: Path) -> None:
    flow, files = engines._given(program, tmp_path, 2000)
    wanted = checksum(program, flow, files)
    assert wanted.count > 0
    assert plain_engine.run(programs.PROGRAMS[program], [str(path) for path in files]).like(wanted)


def test_engines_that_are_there_have_rows(there: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert environments() == {"plain": there}
    flow, files = engines._given("wc", tmp_path, 1000)
    found = {m.measure: m for m in engines._of("engines/wc", "wc", flow, files, 1000, 2)}
    assert list(found) == ["engines/wc/riot_ops", "engines/wc/plain", "engines/wc/vs-plain"]
    assert all(len(m.values) == 2 and m.value > 0 for m in found.values())
    (figure,) = engines.EXPERIMENTS[0].figures
    assert [(s, x) for s, x, _ in figure.points(found.values())] == [("riot_ops", "wc"), ("plain", "wc")]
    monkeypatch.setattr(engines, "ENGINES", {"plain": "tests.bench.plain_engine_wrong"})
    with pytest.raises(RiotError, match="the results of wc differ on plain"):
        list(engines._of("engines/wc", "wc", flow, files, 1000, 1))
    monkeypatch.setattr(engines, "ENGINES", {"plain": "tests.bench.no_engine"})
    with pytest.raises(RiotError, match=r"plain failed with wc: .*no_engine"):
        on_engine(there, "plain", "wc", files)


def test_each_engine_has_its_programs_and_can_be_installed() -> None:
    script = (Path(engines.__file__).parents[3] / "scripts" / "opponents.sh").read_text(encoding="utf-8")
    assert (
        [*engines.ENGINES]
        == ["bytewax", "flink", "pathway"]
        == sorted(re.findall(r"^    (\w+)\) package=", script, re.M))
    )
    assert all(callable(importlib.import_module(module).run) for module in engines.ENGINES.values())


def test_without_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIOT_OPS_ENGINES", str(tmp_path))
    found = [m.measure for m in registry.suite("engines")(quick=True, program=["fd"])]
    assert found == ["engines/fd/riot_ops"]
    with pytest.raises(ConfigError, match="--program must be one of wc, fd, stats, got 'x'"):
        next(registry.suite("engines")(program=["x"]))

"""A folder holds the results of one run."""

from __future__ import annotations

import json

import pytest

from riot_ops.cli.run_folder import RunFolder
from riot_ops.core.errors import ConfigError

STATS = {"application": "stats", "input": "a.csv"}
ETL = {"application": "etl", "input": "a.csv"}


def finished(folder, run=STATS, **options):
    """A run that made a stream and a store."""
    kept = RunFolder(folder, run, ["store.db"], **options)
    kept.add({"avg", "errors"})
    for name in ("avg", "errors"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "part-000000-00000.parquet").write_bytes(b"x")
    (folder / "store.db").write_bytes(b"y")
    if options.get("checkpoint"):
        options["checkpoint"].mkdir(exist_ok=True)
        (options["checkpoint"] / "state").write_bytes(b"z")
    return kept


@pytest.mark.parametrize("run", [STATS, ETL])
def test_results_of_another_run_are_refused(tmp_path, run):
    finished(tmp_path)
    with pytest.raises(ConfigError, match=r"holds the results of stats over a.csv of .*--out.*--overwrite"):
        RunFolder(tmp_path, run, [])


def test_overwrite_removes_only_files_of_the_earlier_run(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    first = RunFolder(tmp_path, ETL, ["store.db", "models"])
    first.add({"avg", "old"})
    for name in ("avg", "old"):
        (tmp_path / name).mkdir()
    (tmp_path / "store.db").write_bytes(b"y")
    RunFolder(tmp_path, STATS, ["store.db"], overwrite=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["models", "notes.txt", "run.json"]


@pytest.mark.parametrize("name", ["..", "../other", "", ".", "/etc"])
def test_manifest_with_foreign_paths_removes_nothing(tmp_path, name):
    (tmp_path / "other").mkdir()
    folder = tmp_path / "out"
    finished(folder)
    manifest = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(manifest | {"made": [name]}))
    with pytest.raises(ConfigError, match="which no run writes"):
        RunFolder(folder, STATS, [], overwrite=True)
    assert (tmp_path / "other").exists()
    assert (folder / "avg").exists()


def test_checkpoint_is_continued_in_the_same_folder(tmp_path):
    out, state = tmp_path / "out", tmp_path / "state"
    assert not finished(out, checkpoint=state).continued
    for _ in range(2):
        assert finished(out, checkpoint=state).continued
    assert (out / "avg").exists()
    with pytest.raises(ConfigError, match=f"continue with --checkpoint {state}"):
        RunFolder(out, STATS, [])
    assert not RunFolder(out, STATS, ["store.db"], overwrite=True).continued
    assert not (out / "avg").exists()


def test_empty_checkpoint_starts_a_run(tmp_path):
    (tmp_path / "state").mkdir()
    assert not RunFolder(tmp_path / "out", STATS, [], checkpoint=tmp_path / "state").continued


@pytest.mark.parametrize(
    ("folder", "run", "options", "text"),
    [
        ("out", ETL, {}, "holds a run with application 'stats', got 'etl'"),
        ("out", {**STATS, "seed": 1}, {}, "holds a run with seed None, got 1"),
        ("new", STATS, {}, "holds no results of a run"),
        ("other", STATS, {}, "holds the results of etl over a.csv"),
        ("out", STATS, {"overwrite": True}, "--overwrite starts a new one"),
    ],
)
def test_checkpoint_of_another_run_is_refused(tmp_path, folder, run, options, text):
    finished(tmp_path / "out", checkpoint=tmp_path / "state")
    finished(tmp_path / "other", ETL)
    with pytest.raises(ConfigError, match=text):
        RunFolder(tmp_path / folder, run, [], checkpoint=tmp_path / "state", **options)


@pytest.mark.parametrize("text", ["nonsense", "[]", '{"run": 1, "made": []}', '{"run": {}}'])
def test_foreign_manifest_is_refused(tmp_path, text):
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(ConfigError, match="was not written by riot-ops run"):
        RunFolder(tmp_path, STATS, [], overwrite=True)


def test_unwritable_folder_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="--out must be a writable folder"):
        RunFolder(tmp_path / "file", STATS, [])


def test_changed_dataflow_may_continue_where_that_is_allowed(tmp_path):
    out, state = tmp_path / "out", tmp_path / "state"
    finished(out, checkpoint=state)
    changed = {**STATS, "dataflow": {"nodes": ["new"]}}
    with pytest.raises(ConfigError, match="or --restart compatible keeps the state of unchanged steps"):
        RunFolder(out, changed, [], checkpoint=state)
    folder = RunFolder(out, changed, [], checkpoint=state, changed=True)
    folder.add({"added"})
    assert "added" in json.loads((out / "run.json").read_text())["made"]
    assert RunFolder(out, changed, [], checkpoint=state).continued, "the folder is now of the changed dataflow"
    with pytest.raises(ConfigError, match="seed"):
        RunFolder(out, {**changed, "seed": "other"}, [], checkpoint=state, changed=True)

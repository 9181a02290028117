"""``riot-ops errors replay``: rejected records through a mended dataflow."""

from __future__ import annotations

import json
import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.cli import replay
from riot_ops.cli.replay import replay_errors
from tests.cli.commands import call, failure


def stream(folder, name):
    return [row for path in sorted((folder / name).glob("part-*.parquet")) for row in pq.read_table(path).to_pylist()]


def test_mended_dataflow_gives_what_the_records_would_have_given(tmp_path):
    """The first run refuses texts in place of numbers; the mended dataflow declares text, and computes from it."""
    broken = ro.Dataflow("greenhouse")
    broken.sink("out", broken.source("in", schema={"bed": "string", "value": "double"}).filter("bed != ''", id="kept"))
    mended = ro.Dataflow("greenhouse")
    mended.sink("out", mended.source("in", schema={"bed": "string", "value": "string"}).filter("bed != ''", id="kept"))
    (tmp_path / "flow.json").write_text(mended.to_json())
    given = [{"bed": f"b{i}", "value": value} for i, value in enumerate([1.0, "y2", 3.0, "x4"])]
    broken.run(given, sinks=ro.ParquetSink(tmp_path / "out"))
    assert len(stream(tmp_path / "out", "errors")) == 2
    text = call("errors", "replay", tmp_path / "out", tmp_path / "flow.json", "--out", tmp_path / "again")
    assert "in: 2 records sent again" in text and "records in kept: 2" in text
    wanted = mended.run([{**row, "value": str(row["value"])} for row in given])["kept"].to_pylist()
    assert stream(tmp_path / "again" / "in", "kept") == [wanted[1], wanted[3]]
    assert "nothing to replay" in call("errors", "replay", tmp_path / "out", tmp_path / "flow.json")


def test_text_of_a_parser_and_state(tmp_path):
    """A message that a parser refused comes again as the text that it was; a step with state begins empty."""

    def parsing():
        made = ro.Dataflow("lines")
        raw = made.source("raw", schema={"payload": "binary"})
        parsed = raw.to(t.ParseSenML(schema="city"), id="parse")
        made.sink("out", parsed.to(t.KalmanFilter(by=("sensor_id",)), id="smooth"))
        return made

    broken, mended = parsing(), parsing()
    broken.run([{"payload": b"not json"}], sinks=ro.ParquetSink(tmp_path / "out"))
    (error,) = stream(tmp_path / "out", "errors")
    assert (error["task"], error["raw"], error["seq"]) == ("parse", "not json", 0)
    (tmp_path / "flow.json").write_text(mended.to_json())
    text = call("errors", "replay", tmp_path / "out" / "errors", tmp_path / "flow.json")
    assert "parse: 1 records sent again" in text and "begun without state, from these records alone: smooth" in text
    (again,) = stream(tmp_path / "out" / "replayed-1" / "parse", "errors")
    assert again == error  # the dataflow is not mended


def test_new_files_are_replayed_and_old_ones_not(tmp_path):
    made = ro.Dataflow("greenhouse")
    made.sink("out", made.source("in", schema={"value": "double"}).filter("value > 0", id="kept"))
    (tmp_path / "flow.json").write_text(made.to_json())
    for batch in (0, 1):
        made.run([{"value": "x"}, {"value": "y"}], sinks=ro.ParquetSink(tmp_path / f"run-{batch}"))
        target = tmp_path / "out" / "errors" / f"part-{batch:06d}-00000.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / f"run-{batch}" / "errors" / "part-000000-00000.parquet").rename(target)
        assert "in: 2 records sent again" in call("errors", "replay", tmp_path / "out", tmp_path / "flow.json")
    marks = json.loads((tmp_path / "out" / "errors" / "replayed.json").read_text())["replays"]
    assert [list(one["files"]) for one in marks] == [["part-000000-00000.parquet"], ["part-000001-00000.parquet"]]
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"errors", "replayed-1", "replayed-2"}


@pytest.mark.parametrize(
    "case", ["no folder", "no step", "no errors", "damaged marks", "other marks", "pipe", "part is a folder"]
)
def test_misuse_changes_nothing(tmp_path, case):
    made = ro.Dataflow("greenhouse")
    made.sink("out", made.source("in", schema={"value": "double"}).filter("value > 0", id="kept"))
    made.run([{"value": "x"}, {"value": 1.0}], sinks=ro.ParquetSink(tmp_path / "out"))
    other = ro.Dataflow("greenhouse")
    other.sink("out", other.source("readings", schema={"value": "double"}).filter("value > 0", id="kept"))
    (tmp_path / "flow.json").write_text((other if case == "no step" else made).to_json())
    folder = {"no folder": tmp_path / "nothing", "no errors": tmp_path / "out" / "kept"}.get(case, tmp_path / "out")
    if case == "damaged marks":
        (tmp_path / "out" / "errors" / "replayed.json").write_text("{")
    if case == "other marks":
        (tmp_path / "out" / "errors" / "replayed.json").write_text('{"replays": [{"files": {"a": 5}}, 7]}')
    if case == "pipe":
        os.mkfifo(tmp_path / "out" / "errors" / "part-000009-00000.parquet")
    if case == "part is a folder":
        (tmp_path / "out" / "errors" / "part-000009-00000.parquet").mkdir()
    code, _, error = failure("errors", "replay", folder, tmp_path / "flow.json")
    wanted = {
        "no folder": "there is no folder",
        "no step": "no step 'in', which has rejected records; its steps are readings, kept, out",
        "no errors": "holds no rejected records: it lacks the column 'event_time'",
        "damaged marks": "replayed.json, which says what was replayed, is damaged",
        "other marks": "replayed.json, which says what was replayed, is damaged",
        "pipe": "part-000009-00000.parquet: [Errno 22] not a regular file",
        "part is a folder": "part-000009-00000.parquet: [Errno 22] not a regular file",
    }[case]
    assert code != 0 and wanted in str(error) and not list(tmp_path.rglob("replayed-1"))


def test_results_lie_below_the_given_folder(tmp_path):
    made = ro.Dataflow("greenhouse")
    made.sink("out", made.source("in", schema={"value": "double"}).filter("value > 0", id="kept"))
    made.run([{"value": "x"}], sinks=ro.ParquetSink(tmp_path / "out"))
    done = replay_errors(tmp_path / "out", made, out=tmp_path / "elsewhere")
    assert done.folder == tmp_path / "elsewhere" and done.sent == {"in": 1}
    assert len(stream(tmp_path / "elsewhere" / "in", "errors")) == 1


def rejecting(folder):
    """Return a dataflow that reads numbers, with two records that it has rejected in a folder."""
    made = ro.Dataflow("greenhouse")
    made.sink("out", made.source("in", schema={"value": "double"}).filter("value > 0", id="kept"))
    made.run([{"value": "x"}, {"value": "y"}], sinks=ro.ParquetSink(folder))
    return made


@pytest.mark.parametrize("point", ["results", "marks"])
@pytest.mark.parametrize("named", [False, True])
def test_interrupted_replay_is_repeated_in_its_folder(tmp_path, monkeypatch, point, named):
    flow, out = rejecting(tmp_path / "out"), tmp_path / "again" if named else None
    write = replay._write_marks

    def stop(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if point == "results":
            patched.setattr(ro.ParquetSink, "commit", stop)
        else:
            patched.setattr(replay, "_write_marks", lambda folder, marks, started=None: (write if started else stop)(
                folder, marks, started
            ))  # fmt: skip
        with pytest.raises(KeyboardInterrupt):
            replay_errors(tmp_path / "out", flow, out)
    with pytest.raises(ro.ConfigError, match="was interrupted: leave --out out to repeat it there, or remove"):
        replay_errors(tmp_path / "out", flow, tmp_path / "other")
    done = replay_errors(tmp_path / "out", flow)
    assert done.folder == (out or tmp_path / "out" / "replayed-1") and done.sent == {"in": 2}
    assert len(stream(done.folder / "in", "errors")) == 2
    assert replay_errors(tmp_path / "out", flow).sent == {}
    assert not (tmp_path / "other").exists() and not (tmp_path / "out" / "replayed-2").exists()


def test_results_of_one_replay_do_not_take_the_place_of_others(tmp_path):
    flow = rejecting(tmp_path / "out")
    first = replay_errors(tmp_path / "out", flow, tmp_path / "again")
    before = stream(first.folder / "in", "errors")
    more = tmp_path / "out" / "errors" / "part-000001-00000.parquet"
    rejecting(tmp_path / "later")
    (tmp_path / "later" / "errors" / "part-000000-00000.parquet").rename(more)
    table = pq.read_table(more)
    pq.write_table(table.slice(1), more)  # another file than the first
    for place in (tmp_path / "again", tmp_path / "out", more):
        with pytest.raises(ro.ConfigError, match="is there already, and may hold results: give a new folder"):
            replay_errors(tmp_path / "out", flow, place)
    assert stream(first.folder / "in", "errors") == before
    (tmp_path / "out" / "replayed-2").mkdir()
    assert replay_errors(tmp_path / "out", flow).folder == tmp_path / "out" / "replayed-3"


@pytest.mark.parametrize("raw", ["[" * 100_000, '{"value": ' * 50_000, "\x1b[31m", "", None])
def test_texts_that_are_no_records_are_sent_as_they_are(tmp_path, raw):
    flow = rejecting(tmp_path / "out")
    (path,) = (tmp_path / "out" / "errors").glob("part-*")
    table = pq.read_table(path).slice(0, 1)
    place = table.schema.get_field_index("raw")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array([raw], pa.string())), path)
    assert replay_errors(tmp_path / "out", flow).sent == {"in": 1}


def test_columns_of_other_types_are_refused(tmp_path):
    flow = rejecting(tmp_path / "out")
    (path,) = (tmp_path / "out" / "errors").glob("part-*")
    table = pq.read_table(path)
    place = table.schema.get_field_index("raw")
    pq.write_table(table.set_column(place, "raw", pa.array([5, 6])), path)
    with pytest.raises(ro.ConfigError, match="its column 'raw' is int64 instead of string"):
        replay_errors(tmp_path / "out", flow)

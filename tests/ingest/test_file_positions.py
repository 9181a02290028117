"""A restart over files: it reads each record once, or refuses by name what it cannot continue."""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops.core.errors import StateError
from riot_ops.ingest.replay import ReplaySource
from tests.search import depth

SCHEMA = {"device": "string", "value": "double"}
FORMS = ["csv", "jsonl", "parquet", "csv.gz", "log", "log.gz"]


def write(path, rows, form="csv", end="\n"):
    """Write rows of a device and a value in one of the forms; ``path`` has no suffix."""
    path = path.with_name(f"{path.name}.{form}")
    if form == "parquet":
        pq.write_table(pa.table({"device": [d for d, _ in rows], "value": [v for _, v in rows]}), path)
        return path
    if form == "jsonl":
        lines = [json.dumps({"device": d, "value": v}) for d, v in rows]
    elif form.startswith("log"):
        lines = [f"{1000 + i},{d},{v}" for i, (d, v) in enumerate(rows)]
    else:
        lines = ["device,value", *(f"{d},{v}" for d, v in rows)]
    data = ("\n".join(lines) + end).encode()
    path.write_bytes(gzip.compress(data) if form.endswith("gz") else data)
    return path


def source_of(path, form="csv"):
    return ro.streams.replay(path) if form.startswith("log") else ro.read(path)


def run(source, checkpoint, stop=None):
    """Return the committed records of a run that continues at a checkpoint; it breaks off after ``stop`` of them."""
    flow = ro.Dataflow("files")
    if isinstance(source, ReplaySource):
        fields = {"event_time": (0, "ms"), "device": (1, "string"), "value": (2, "double")}
        records = flow.source("lines").to(ro.tasks.ParseLines(schema=fields), id="in")
    else:
        records = flow.source("in", schema=SCHEMA)
    flow.sink("out", records)

    class Stop(Exception):
        pass

    def halt(summary):
        if stop is not None and summary.messages >= stop:
            raise Stop

    out = checkpoint.with_name(f"{checkpoint.name}-out")
    before = committed(out)
    with contextlib.suppress(Stop):
        flow.run(source, out=out, checkpoint=checkpoint, batch_size=2, epoch_rows=2, progress=halt)
    return committed(out)[len(before) :]


def committed(out):
    """Return the records in the files of a sink, in the order of their numbers."""
    files = sorted((out / "in").glob("*.parquet"))
    rows = pa.concat_tables(map(pq.read_table, files)).sort_by("seq").to_pylist() if files else []
    return [(row["device"], row["value"]) for row in rows]


def numbered(name, n, first=0):
    return [(name, float(i)) for i in range(first, first + n)]


@pytest.mark.parametrize("form", FORMS)
def test_new_files_are_found_in_any_order(tmp_path, form):
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / "m", numbered("m", 3), form)
    assert run(source_of(folder, form), tmp_path / "c") == numbered("m", 3)
    write(folder / "b", numbered("b", 2), form)
    write(folder / "z", numbered("z", 2), form)
    assert run(source_of(folder, form), tmp_path / "c") == numbered("b", 2) + numbered("z", 2)
    write(folder / "a", numbered("a", 1), form)
    assert run(source_of(folder, form), tmp_path / "c") == numbered("a", 1)
    assert run(source_of(folder, form), tmp_path / "c") == []


@pytest.mark.parametrize("form", ["csv", "jsonl", "log"])
def test_grown_files_continue_beside_new_ones(tmp_path, form):
    folder = tmp_path / "in"
    folder.mkdir()
    for name in "mp":
        write(folder / name, numbered(name, 3), form)
    assert run(source_of(folder, form), tmp_path / "c") == numbered("m", 3) + numbered("p", 3)
    for name in "amp":
        write(folder / name, numbered(name, 5), form)
    found = run(source_of(folder, form), tmp_path / "c")
    assert sorted(found) == sorted(numbered("a", 5) + numbered("m", 2, 3) + numbered("p", 2, 3))
    assert run(source_of(folder, form), tmp_path / "c") == []


@pytest.mark.parametrize("form", FORMS)
def test_read_files_may_be_removed(tmp_path, form):
    folder = tmp_path / "in"
    folder.mkdir()
    path = write(folder / "m", numbered("m", 3), form)
    assert len(run(source_of(folder, form), tmp_path / "c")) == 3
    path.unlink()
    write(folder / "b", numbered("b", 2), form)
    assert run(source_of(folder, form), tmp_path / "c") == numbered("b", 2)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("stop", [None, 2])
def test_replaced_file_is_refused_by_name(tmp_path, form, stop):
    path = write(tmp_path / "m", numbered("m", 6), form)
    run(source_of(path, form), tmp_path / "c", stop)
    write(tmp_path / "m", numbered("x", 9), form)
    with pytest.raises(StateError, match=rf"m\.{form} is not the file that was read: .*new name|another name"):
        run(source_of(path, form), tmp_path / "c")


@pytest.mark.parametrize("stop", [None, 2])
@pytest.mark.parametrize("form", ["csv", "log"])
def test_shortened_file_is_refused_by_name(tmp_path, stop, form):
    path = write(tmp_path / "m", numbered("m", 6), form)
    run(source_of(path, form), tmp_path / "c", stop)
    write(tmp_path / "m", numbered("m", 1), form)
    with pytest.raises(StateError, match=r"m\.\w+ is not the file that was read: it has \d+ bytes, fewer than the \d+"):
        run(source_of(path, form), tmp_path / "c")


@pytest.mark.parametrize("form", ["csv", "log"])
def test_rotated_file_is_refused_by_name(tmp_path, form):
    folder = tmp_path / "in"
    folder.mkdir()
    path = write(folder / "log", numbered("old", 6), form)
    run(source_of(folder, form), tmp_path / "c", 2)
    os.rename(path, folder / f"log-1.{form}")
    with pytest.raises(StateError, match=r"ends within .*log\.\w+, which is not among the files"):
        run(source_of(folder, form), tmp_path / "c")
    write(folder / "log", numbered("new", 6), form)
    with pytest.raises(StateError, match=r"log\.\w+ is not the file that was read: it has other content"):
        run(source_of(folder, form), tmp_path / "c")


@pytest.mark.parametrize("form", ["csv", "log"])
def test_other_path_is_refused_and_a_longer_list_continues(tmp_path, form):
    one, two = (write(tmp_path / name, numbered(name, 3), form) for name in ("one", "two"))
    assert len(run(source_of([one], form), tmp_path / "c")) == 3
    with pytest.raises(
        StateError, match=r"is of the files of .*one\.\w+, and none of them is among those of .*two\.\w+"
    ):
        run(source_of(two, form), tmp_path / "c")
    assert run(source_of([two, one], form), tmp_path / "c") == numbered("two", 3)


@pytest.mark.parametrize("form", ["csv", "log"])
def test_continued_last_line_is_refused_by_name(tmp_path, form):
    path = write(tmp_path / "m", numbered("m", 3), form, end="")
    assert len(run(source_of(path, form), tmp_path / "c")) == 3
    assert run(source_of(path, form), tmp_path / "c") == []
    whole = path.read_bytes()
    more = b"m,9\n" if form == "csv" else b"9000,m,9\n"
    path.write_bytes(whole + b"7\n" + more)
    with pytest.raises(StateError, match=r"the last line of .*m\.\w+ was unfinished when it was read, and has changed"):
        run(source_of(path, form), tmp_path / "c")
    path.write_bytes(whole + b"\n" + more)
    assert run(source_of(path, form), tmp_path / "c") == [("m", 9.0)]


def test_damaged_position_is_refused(tmp_path):
    path = write(tmp_path / "m", numbered("m", 3))
    for wrong in ({"row": 2}, {"row": 2, "of": "x", "read": "?"}, {"row": 2, "of": "x", "read": "AAAA"}):
        with pytest.raises(StateError, match=r"the position in .*m\.csv"):
            ro.read(path).latest(wrong)


@pytest.mark.long
@settings(max_examples=depth(30))
@given(choose=st.integers(0, 2**32).map(random.Random))
@pytest.mark.parametrize("form", ["csv", "log"])
def test_every_record_is_read_once_over_restarts_new_files_and_growth(tmp_path_factory, form, choose):
    """Restarts at random records, while files come, grow and go."""
    folder = tmp_path_factory.mktemp("in")
    checkpoint = tmp_path_factory.mktemp("kept") / "c"
    rows, read, names = {}, [], iter(random.Random(1).sample("abcdefghijklmnop", 16))
    for _ in range(5):
        for _ in range(choose.randrange(3)):
            rows[next(names)] = 0
        for name in rows:
            if not rows[name] or choose.random() < 0.5:
                rows[name] += choose.randrange(1, 5)
                write(folder / name, numbered(name, rows[name]), form)
        if rows:
            read += run(source_of(folder, form), checkpoint, choose.choice([None, 1, 3, 6]))
    if rows:
        read += run(source_of(folder, form), checkpoint)
    wanted = list(itertools.chain.from_iterable(numbered(name, n) for name, n in rows.items()))
    assert sorted(read) == sorted(wanted)
    for name, n in rows.items():
        assert [row for row in read if row[0] == name] == numbered(name, n), "in the order of the file"

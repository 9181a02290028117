"""Applications that read lines give the records of a local run on Spark, also in micro-batches and after a restart."""

from __future__ import annotations

import pytest

from riot_ops.dataflows import APPLICATIONS
from riot_ops.streams import ReplaySource, generate, write
from riot_ops.testing import exact

LINES = [name for name, one in APPLICATIONS.items() if one.suite != "riotbench"]
#: Its steps pass all kinds of state and time; the others are slow tests.
SHORT = {"trending_topics"}
#: Lines until each result has records; 900 for all others.
LINES_OF = {"smart_grid": 3000, "equipment_monitoring": 20_000}


def records(result, stream):
    return sorted(repr(exact(row)) for row in result[stream].to_pylist())


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "partitions", "max_records"),
    [
        pytest.param(name, *cut, marks=[] if name in SHORT and cut == (2, 350) else [pytest.mark.slow])
        for name in LINES
        for cut in ((2, 350), (1, None))
    ],
)
def test_records_equal_local_run(name, partitions, max_records, spark, tmp_path):
    one = APPLICATIONS[name]
    lines = LINES_OF.get(name, 900)
    files = {}
    for stream in one.inputs.values():
        files[stream] = tmp_path / stream
        write(generate(stream, messages=lines, seed=7), files[stream])
    source = {node: ReplaySource(files[stream]) for node, stream in one.inputs.items()}
    streams = [*one.results, "errors"]
    local = one.builder().run(source, batch_size=200)
    wanted = {stream: records(local, stream) for stream in streams}
    assert all(wanted[stream] for stream in one.results)
    query = one.builder().start(
        spark, source=source, partitions=partitions, max_records=max_records and max_records * lines // 900
    )
    query.wait()
    assert {stream: records(query, stream) for stream in streams} == wanted


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", LINES)
def test_restart_of_stopped_run(name, spark, tmp_path):
    one = APPLICATIONS[name]
    files = {}
    for stream in one.inputs.values():
        files[stream] = tmp_path / stream
        write(generate(stream, messages=900, seed=7), files[stream])
    kept = {"out": tmp_path / "out", "checkpoint": tmp_path / "checkpoint", "max_records": 200, "partitions": 2}
    flow = one.builder()
    # the same files, at first with half of their lines
    lines = {stream: path.read_bytes().splitlines(keepends=True) for stream, path in files.items()}
    for stream, path in files.items():
        path.write_bytes(b"".join(lines[stream][:450]))
    source = {node: ReplaySource(files[stream], follow=True) for node, stream in one.inputs.items()}
    query = flow.start(spark, source=source, **kept)
    query.wait(timeout="8s")
    query.stop()
    for stream, path in files.items():
        path.write_bytes(b"".join(lines[stream]))
    whole = {node: ReplaySource(files[stream]) for node, stream in one.inputs.items()}
    query = flow.start(spark, source=whole, **kept)
    query.wait()
    wanted = flow.run(whole)
    for stream in one.results:
        assert records(query, stream) == records(wanted, stream)

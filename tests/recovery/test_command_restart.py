"""Restart of ``riot-ops run`` on Spark after Ctrl-C: no record is lost or duplicated."""

from __future__ import annotations

import re
import signal
import subprocess
import sys

import psutil
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.cli import main as cli
from tests.sessions import used_by_the_command

ROWS = 20_000
FIELDS = {"device": "string", "value": "double"}


def smoothing():
    """Return a dataflow of smoothed records, and averages whose windows may span the restart."""
    flow = ro.Dataflow("smoothing")
    readings = flow.source("readings", schema=FIELDS)
    smooth = readings.to(t.KalmanFilter(by="device"), id="smooth")
    return flow.sink("out", smooth, smooth.to(t.MovingAverage(by="device", window=7), id="average"))


def lines(start, end):
    """Return lines, some with bad values that become errors."""
    return "".join(f"d{i % 5},{'bad' if i % 997 == 0 else i * 7 % 100}\n" for i in range(start, end))


COMMAND = ["run", "flow.json", "--input", "readings.csv", "--out", "out", "--runner", "spark", "--cores", "2"]


def start_command(tmp_path, *options):
    return subprocess.Popen(
        [sys.executable, "-m", "riot_ops", *COMMAND, "--checkpoint", str(tmp_path / "kept"), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        cwd=tmp_path,
    )


@pytest.mark.spark
@pytest.mark.parametrize(
    "number",
    [pytest.param(signal.SIGINT, marks=pytest.mark.slow), signal.SIGTERM],  # another Spark, for the same way out
)
def test_interrupted_run_continues_in_grown_file(spark, tmp_path, monkeypatch, number):
    (tmp_path / "flow.json").write_text(smoothing().to_json(), encoding="utf-8")
    path = tmp_path / "readings.csv"
    path.write_text("device,value\n" + lines(0, ROWS))
    process = start_command(tmp_path, "--rate", "200")
    output = []
    for line in process.stdout:
        output.append(line)
        found = re.search(r"([\d,]+) messages .*/s", line)
        if found and int(found[1].replace(",", "")) > 300:
            break
    family = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(number)
    output.append(process.communicate(timeout=120)[0])
    assert process.returncode == 128 + number, "".join(output)
    assert "Traceback" not in "".join(output)
    assert family
    assert not psutil.wait_procs(family, timeout=30)[1], "the JVM or a worker is left"
    assert "messages are kept; run the same command to continue" in output[-1]
    shown = {name: int(n.replace(",", "")) for name, n in re.findall(r"records in (\w+) *│ *([\d,]+)", output[-1])}
    files = {name: sorted((tmp_path / "out" / name).glob("*.parquet")) for name in shown}
    assert shown == {name: sum(pq.read_metadata(f).num_rows for f in found) for name, found in files.items()}
    assert 300 < shown["smooth"] < ROWS, "not interrupted in the middle"

    with path.open("a") as file:
        file.write(lines(ROWS, ROWS + 500))
    monkeypatch.chdir(tmp_path)
    with used_by_the_command(spark):
        done = CliRunner().invoke(
            cli.app, [*COMMAND, "--checkpoint", str(tmp_path / "kept"), "--batch-size", "17000"], catch_exceptions=False
        )
    assert done.exit_code == 0, done.output
    assert "runner spark, continued" in done.output

    wanted = smoothing().run(path)
    assert wanted["errors"].num_rows == 21
    for name in ("smooth", "average", "errors"):
        files = sorted((tmp_path / "out" / name).glob("*.parquet"))
        rows = [row for f in files for row in pq.read_table(f).to_pylist()]
        assert sorted(rows, key=lambda row: row["seq"]) == wanted[name].sort_by("seq").to_pylist(), name


PROGRAM = """
import riot_ops as ro
from riot_ops.spark import session

flow = ro.Dataflow("smoothing")
flow.sink("kept", flow.source("readings", schema={"value": "double"}).to(ro.tasks.KalmanFilter(), id="smooth"))
source = ro.streams.PacedSource(ro.MemorySource([{"value": float(i)} for i in range(100_000)]), rate=200)
spark = session(cores=2)
query = flow.start(spark, source, out="out", checkpoint="kept", trigger="1 second")
try:
    query.wait(progress=lambda q: print(q.summary.messages, flush=True))
except KeyboardInterrupt:
    print("interrupted", query.summary.rows["smooth"], query.active, flush=True)
spark.stop()
"""


@pytest.mark.spark
def test_sigterm_ends_a_query_of_a_program_after_its_micro_batch(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, start_new_session=True, cwd=tmp_path
    )
    for line in process.stdout:
        if line.strip().isdecimal() and int(line) > 100:
            break
    process.send_signal(signal.SIGTERM)
    rest = process.communicate(timeout=120)[0]
    assert process.returncode == 0, rest
    interrupted = re.search(r"interrupted (\d+) False", rest)
    rows = [
        row
        for f in sorted((tmp_path / "out" / "smooth").glob("*.parquet"))
        for row in pq.read_table(f)["seq"].to_pylist()
    ]
    assert sorted(rows) == list(range(int(interrupted[1])))

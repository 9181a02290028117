"""Runs that are killed around a commit and started again: each record once, or at least once where that is stated."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from riot_ops.testing.services import Postgres
from tests.connectors import killing
from tests.connectors.http_server import Recorder

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.long
POINTS = ("writing", "before", "after")
SLOW = [pytest.mark.slow]  # each starts two processes that import everything, or two JVMs


def run(runner, name, folder, point, url=""):
    """Run the job; return its exit code."""
    folder.mkdir(exist_ok=True)
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NUMBA_DISABLE_JIT": "1"}
    command = [sys.executable, "-m", "tests.connectors.killing", runner, name, str(folder), point, "2", url]
    with open(folder / f"{point}.log", "wb") as log:  # a pipe would wait for processes that outlive the run
        return subprocess.run(
            command, cwd=ROOT, env=environment, check=False, start_new_session=True, stdout=log, stderr=log, timeout=300
        ).returncode


def kill_and_continue(runner, name, folder, point, url=""):
    assert run(runner, name, folder, point, url) == -signal.SIGKILL, (folder / f"{point}.log").read_text()[-3000:]
    assert run(runner, name, folder, "never", url) == 0, (folder / "never.log").read_text()[-3000:]


def wanted():
    rows = killing.dataflow().run(killing.RECORDS)["mean"].to_pylist()
    return Counter((row["seq"], row["device"], row["value"]) for row in rows)


def counted(rows):
    return Counter((int(row["seq"]), row["device"], float(row["value"])) for row in rows)


def results(name, folder, url=""):
    """Read the results by another program."""
    if name == "delta":
        return counted(DeltaTable(str(folder / "lake" / "mean")).to_pyarrow_table().to_pylist())
    if name == "iceberg":
        table = load_catalog("default", **killing.catalog(folder)).load_table("ns.mean")
        return counted(table.scan().to_arrow().to_pylist())
    if name in ("postgres", "upsert"):
        with psycopg.connect(url, password=killing.PASSWORD) as connection:
            found = connection.execute("SELECT seq, device, value FROM mean").fetchall()
            left = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE 'riot_ops_stage%'").fetchall()
        assert left == []
        return counted(dict(zip(("seq", "device", "value"), row, strict=True)) for row in found)
    rows = []
    for file in (folder / "out" / "mean").glob("part-*"):  # hidden ones do not count
        with open(file, newline="") as opened:
            rows += list(csv.DictReader(opened)) if name.startswith("csv") else map(json.loads, opened)
    assert not list((folder / "out" / "mean").glob(".part-*"))
    return counted(rows)


@contextlib.contextmanager
def server(name):
    if name not in ("postgres", "upsert"):
        yield ""
        return
    with Postgres(password=killing.PASSWORD, options=("fsync=off",)) as one:
        yield one.url


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "point"),
    [
        pytest.param(name, point, marks=() if (name, point) == ("csv", "after") else SLOW)
        for name in ("csv", "csv-rolled", "jsonl", "jsonl-rolled", "delta", "iceberg", "postgres", "upsert")
        for point in POINTS
    ],
)
def test_each_record_is_written_once_in_process(name, point, tmp_path):
    with server(name) as url:
        kill_and_continue("local", name, tmp_path / "job", point, url)
        assert results(name, tmp_path / "job", url) == wanted()


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "point"),
    [
        *((name, point) for name in ("delta", "iceberg", "postgres") for point in ("before", "after")),
        ("upsert", "after"), ("csv", "after"), ("csv-rolled", "before"), ("jsonl-rolled", "after"), ("delta", "writing"),
    ],
)  # fmt: skip
def test_each_record_is_written_once_on_spark(name, point, tmp_path):
    with server(name) as url:
        kill_and_continue("spark", name, tmp_path / "job", point, url)
        assert results(name, tmp_path / "job", url) == wanted()


@pytest.mark.parametrize(
    ("runner", "point"),
    [
        pytest.param("local", "before", marks=SLOW),
        pytest.param("local", "after"),
        pytest.param("spark", "after", marks=[pytest.mark.spark, *SLOW]),
    ],
)
def test_each_record_is_sent_over_http_at_least_once(runner, point, tmp_path):
    with Recorder() as web:
        kill_and_continue(runner, "http", tmp_path / "job", point, f"{web.url}/{{stream}}")
        requests = [one for one in web.requests if one.path == "/mean"]
    found, expected = Counter(), wanted()
    for one in requests:
        found += counted(json.loads(one.body))
    assert set(found) == set(expected)
    repeated = {key for key, n in found.items() if n > expected[key]}
    assert 0 < len(repeated) <= 12, "those of the batch that was sent and not noted"
    keys = Counter(one.headers["Idempotency-Key"] for one in requests)
    assert all(n <= 2 for n in keys.values())
    bodies = {}
    for one in requests:
        assert bodies.setdefault(one.headers["Idempotency-Key"], one.body) == one.body, "a key stands for one body"

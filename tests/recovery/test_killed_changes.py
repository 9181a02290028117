"""Changes of a checkpoint on Spark that are killed in the middle: the next start continues, and loses nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.spark.test_generation import TABLE, changing, contents, rows, run

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.spark, pytest.mark.slow]

#: Starts the changed dataflow in a process that kills its whole group, with the JVM, at a point of the change.
KILLED = """
import os, signal, sys, threading, time
from pathlib import Path
import riot_ops as ro
from riot_ops.spark import session
from riot_ops.spark.checkpoint import SparkCheckpoint
from riot_ops.spark.generation import NewGeneration
from tests.spark.test_generation import changing, run

point, folder = sys.argv[1], Path(sys.argv[2])

def kill(*args, **options):
    os.killpg(0, signal.SIGKILL)

def then_kill(owner, name):
    call = getattr(owner, name)
    def patched(*args, **options):
        call(*args, **options)
        kill()
    setattr(owner, name, patched)

def watch():
    while not (folder / "checkpoint" / "generation-1" / "offsets" / "0").exists():
        time.sleep(0.001)
    kill()

if point == "while the state is written":
    threading.Thread(target=watch, daemon=True).start()
elif point == "state written":
    then_kill(NewGeneration, "build")
elif point == "offsets written":
    SparkCheckpoint._copy_sources = kill
elif point == "manifest hidden":
    write = SparkCheckpoint._write_text
    def patched(self, name, text):
        write(self, name, text)
        if name.endswith(".riot_ops.json"):
            kill()
    SparkCheckpoint._write_text = patched
elif point == "manifest written":
    then_kill(SparkCheckpoint, "_write")
run(changing(new=True), session(cores=2, memory="1g"), 400, folder, partitions=3, restart="compatible")
"""


@pytest.mark.parametrize(
    ("point", "counts"),
    [
        ("while the state is written", False),
        ("state written", False),
        ("offsets written", False),
        ("manifest hidden", False),
        ("manifest written", True),
    ],
)
def test_killed_change_loses_nothing(spark, tmp_path, point, counts):
    run(changing(), spark, 130, tmp_path).stop()  # which gives up the lock
    before = contents(tmp_path / "checkpoint")
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, point, str(tmp_path)],
        cwd=ROOT,
        env=environment,
        check=False,
        start_new_session=True,
        timeout=300,
        capture_output=True,
        text=True,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr[-3000:]
    assert (tmp_path / "checkpoint" / "generation-1").exists()
    assert (tmp_path / "checkpoint" / "generation-1" / "riot_ops.json").exists() == counts
    assert contents(tmp_path / "checkpoint") == before
    query = run(changing(new=True), spark, 400, tmp_path, partitions=3, restart="compatible")
    assert query.restart.kept == ("smooth", "mean", *["new"] * counts) and query.summary.messages == 270
    assert query.restart.empty == ({} if counts else {"new": "it is new"})
    whole = changing().run(TABLE)
    for stream in ("smooth", "mean"):
        assert rows(query, stream) == rows(whole, stream), stream
    wanted = Counter(row["device"] for row in changing(new=True).run(TABLE.slice(130))["new"].to_pylist())
    assert Counter(row["device"] for row in query["new"].to_pylist()) == wanted

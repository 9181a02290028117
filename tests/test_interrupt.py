"""Ctrl-C ends a run of the command in order: what has been processed is there, and the summary counts it."""

import re
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest


@pytest.mark.parametrize(
    ("runner", "cores"),
    [
        pytest.param("local", "1", id="local"),
        pytest.param("local", "2", id="two-cores"),
        pytest.param("spark", "2", id="spark", marks=pytest.mark.spark),
    ],
)
def test_what_was_processed_is_kept(tmp_path, runner, cores):
    command = [sys.executable, "-m", "riot_ops", "run", "stats", "--stream", "grid", "--sensors", "50"]
    options = ["--runner", runner, "--cores", cores, "--rate", "2000", "--messages", "500000", "--out", str(tmp_path)]
    process = subprocess.Popen(
        [*command, *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    assert process.stdout is not None
    before = []
    for line in process.stdout:
        before.append(line)
        found = re.search(r"([\d,]+) messages .*/s", line)
        if found and int(found[1].replace(",", "")) > 500:
            break
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=60)
    text = "".join(before) + rest
    assert process.returncode == 130, text
    assert "interrupted: what has been processed is kept" in text
    shown = {name: int(n.replace(",", "")) for name, n in re.findall(r"records in (\w+) *│ *([\d,]+)", rest)}
    files = {name: sorted((tmp_path / name).glob("*.parquet")) for name in shown}
    assert shown["dac"] > 500
    assert shown == {name: sum(pq.read_metadata(f).num_rows for f in found) for name, found in files.items()}

"""Ctrl-C ends a run of the command in order: what has been processed is there, and the summary counts it.

The same on Spark: tests/recovery/test_command_restart.py.
"""

import re
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest


@pytest.mark.long
@pytest.mark.parametrize("cores", [pytest.param("1", id="local"), pytest.param("2", id="two-cores")])
def test_what_was_processed_is_kept(tmp_path, cores):
    command = [sys.executable, "-m", "riot_ops", "run", "stats", "--stream", "grid", "--sensors", "50"]
    options = ["--runner", "local", "--cores", cores, "--rate", "2000", "--messages", "500000", "--out", str(tmp_path)]
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
    assert "interrupted: the results so far are kept" in text
    shown = {name: int(n.replace(",", "")) for name, n in re.findall(r"records in (\w+) *│ *([\d,]+)", rest)}
    files = {name: sorted((tmp_path / name).glob("*.parquet")) for name in shown}
    assert shown["dac"] > 500
    assert shown == {name: sum(pq.read_metadata(f).num_rows for f in found) for name, found in files.items()}

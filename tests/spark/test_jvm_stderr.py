"""What the terminal shows of a query in a session of riot_ops: no steps of Spark's helpers, but all else."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from riot_ops.spark.jvm_stderr import Hush

NAME = "Streaming TransformWithStateInPandas Python worker"
TOLD = [f"Starting {NAME}.\n\n", f"{NAME} Completed execution of UDF: <function f>.\n\n"]
OTHER = [
    "\n",
    "\n\n",
    "26/01/01 ERROR Executor: lost\n",
    "Starting Streaming\n",
    "Str",
    "\r[Stage 0:>",
    f"see {NAME}\n",
]

JOB = f"""
from riot_ops.spark import session
tell = session(cores=1)._jvm.System.err
tell.print({"".join(TOLD)!r})
tell.println("WARN: before the end")
tell.print("x" * 100_000 + " and behind it")
"""


def run(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


@pytest.mark.spark
def test_warnings_are_shown_and_steps_are_not():
    """The steps of a query are those in the log of tests/recovery/test_restart.py."""
    done = run(JOB)
    assert done.returncode == 0, done.stderr
    assert NAME not in done.stdout + done.stderr
    assert "WARN: before the end\n" in done.stderr
    assert done.stderr.endswith("x" * 100_000 + " and behind it"), "also what comes last"


def test_why_java_does_not_start_is_shown(tmp_path):
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho no java today >&2\nexit 1\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    done = run("from riot_ops.spark import session; session(cores=1)", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert "no java today" in done.stderr
    assert "JAVA_GATEWAY_EXITED" in done.stderr


@given(st.lists(st.sampled_from([*TOLD, *OTHER])), st.lists(st.integers(1, 60)))
def test_wherever_the_bytes_are_cut(parts, cuts):
    text = "".join(parts)
    hush, passed, at = Hush(), b"", 0
    for size in [*cuts, len(text)]:
        passed += hush(text[at : at + size].encode())
        at += size
    left = re.sub(rf"(?m)^(Starting )?{NAME}.*\n\n", "", text + "|end")
    assert (passed + hush(b"|end") + hush.held).decode() == left


def test_what_is_no_line_of_the_helper_comes_at_once():
    hush = Hush()
    assert hush(b"[Stage 0:>") == b"[Stage 0:>"
    assert hush(b"=> (1 + 1)\rStarting " + NAME.encode()) == b"=> (1 + 1)\rStarting " + NAME.encode()
    assert hush(b"\nSt") == b"\n"
    assert hush(b"op\n") == b"Stop\n"

"""The code blocks of the pages, run by pytest while the pages are made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

from pages import ROOT, Problem

__all__ = ["CodeRun"]

#: Pages whose blocks run, and the test that runs the page about Spark in a session of Spark.
PAGES = ["README.md", "docs"]
SPARK = "tests/spark/test_howto.py"


class CodeRun:
    """A run of the code blocks of pages, started when it is made; by default of all."""

    def __init__(self, pages: Sequence[str] = (*PAGES, SPARK), processes: int | None = None) -> None:
        count = min(4, 2 * (os.cpu_count() or 1)) if processes is None else processes
        command = [
            sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", "--tb=short",
            "-c", str(ROOT / "pyproject.toml"), "--rootdir", str(ROOT), "-n", str(count), "--dist", "loadfile", *pages,
        ]  # fmt: skip
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )

    def finish(self) -> None:
        """Wait for the end; a block that fails is a :class:`Problem` with its file and line."""
        output, _ = self.process.communicate()
        if self.process.returncode:
            raise Problem(f"code blocks of the pages fail:\n{output}")

    def stop(self) -> None:
        """End a run that is not needed any more."""
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

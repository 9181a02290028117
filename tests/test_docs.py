"""The generated pages are up to date."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def test_task_page_is_current():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "write_docs.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr

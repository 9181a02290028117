"""The example package of CONTRIBUTING.md passes the contract suite."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CONTRIBUTING = Path(__file__).resolve().parents[2] / "CONTRIBUTING.md"


def files():
    """The files of the example package in CONTRIBUTING.md, by name."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    return dict(re.findall(r"```python\n# (\S+\.py)\n(.*?)```", text, re.DOTALL))


@pytest.mark.long
def test_example_package_passes_its_tests_and_a_fault_fails(tmp_path):
    shown = files()
    assert set(shown) == {"greenhouse/dew_point.py", "tests/test_dew_point.py"}
    for name, content in shown.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")

    def run():
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
            cwd=tmp_path,
            # plugins of this environment are not needed and load slowly
            env={**os.environ, "PYTHONPATH": str(tmp_path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
    # a task that turns missing values into NaN fails, with the name of the check
    file = tmp_path / "greenhouse" / "dew_point.py"
    file.write_text(shown[file.relative_to(tmp_path).as_posix()].replace("mask=np.isnan(dew)", ""), encoding="utf-8")
    done = run()
    assert done.returncode == 1
    assert "NaN in dew_point" in done.stdout
    assert "in check_missing_and_bad_values of DewPoint" in done.stdout

"""Run what tests one source file: the tests named after it, its doctests, a task's part of the contract suite.

python tools/test_one.py src/riot_ops/tasks/join/assemble_message.py
python tools/test_one.py join -x
"""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from mutants import PACKAGE, ROOT, SETTINGS, codes_of, tests_of


def main(file: str, *options: str) -> int:
    """Find and run them; further options are pytest's."""
    found = [Path(file)] if file.endswith(".py") else sorted((ROOT / PACKAGE).rglob(f"{file}.py"))
    if len(found) != 1 or not (ROOT / found[0]).is_file():
        sys.exit(f"test_one: {file!r} is {len(found)} files below {PACKAGE}: {', '.join(map(str, found)) or 'none'}")
    name = str((ROOT / found[0]).resolve().relative_to(ROOT / PACKAGE))
    tests = tests_of(name, tomllib.loads((ROOT / SETTINGS).read_text(encoding="utf-8")))
    # only this task's part of the contract suite
    chosen = " or ".join(["not test_contract", *(f"{code}[" for code in codes_of(name))])
    return subprocess.call([sys.executable, "-m", "pytest", "-q", "-k", chosen, *options, *tests], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

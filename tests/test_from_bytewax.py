"""The programs of the page about bytewax give the same as ours, where an environment has bytewax."""

import doctest
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parent.parent / "docs" / "howto" / "from_bytewax.md"
#: Where `tools/baseline_engines.sh bytewax` installs it: it has no wheels for some versions of Python.
ENGINES = Path(os.environ.get("RIOT_OPS_ENGINES", "~/.cache/riot_ops/engines")).expanduser()


def bytewax_python():
    for python in (Path(sys.executable), ENGINES / "bytewax" / "bin" / "python"):
        if (
            python.exists()
            and not subprocess.run(
                [python, "-c", "import bytewax.dataflow"], capture_output=True, check=False
            ).returncode
        ):
            return python
    pytest.skip("no environment has bytewax: tools/baseline_engines.sh bytewax makes one")


def results_of_page():
    """What ``result`` is after each of our blocks."""
    names, results = {}, []
    for block in re.findall(r"```python\n(>>> .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        for example in doctest.DocTestParser().get_examples(block):
            exec(compile(example.source, PAGE.name, "single"), names)
        results.append(names["result"])
    return results


@pytest.mark.slow
def test_programs_of_both_give_the_same(capsys):
    python = bytewax_python()
    programs = re.findall(r"```python\n(import bytewax.*?|from datetime.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    ours = results_of_page()
    assert len(programs) == len(ours) == 2
    for program, result in zip(programs, ours, strict=True):
        code = program + "\nimport json\nprint(json.dumps(result))\n"
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert len(result) > 10
        # of different keys neither promises an order
        assert sorted(json.loads(done.stdout)) == sorted([list(row) for row in result])

"""Keep the state of every task, for the tests of later releases: run it once per release.

Before the release, ``--again CODE...`` replaces the states of tasks that have changed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from riot_ops import __version__
from riot_ops.core.errors import ConfigError
from riot_ops.task import KeyedTask, find_task, registered_tasks
from riot_ops.testing.states import keep_state


def main() -> None:
    """Write ``tests/data/state/<release>/<code>-<case>.state``; existing files are unchanged."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", nargs="+", default=[], metavar="CODE", help="tasks whose files are replaced")
    again = {find_task(code).code for code in parser.parse_args().again}
    folder = Path(__file__).parents[1] / "tests" / "data" / "state" / __version__
    folder.mkdir(parents=True, exist_ok=True)
    for code in again:
        for path in folder.glob(f"{code}-*.state"):
            path.unlink()
    for kind in registered_tasks():
        for i, case in enumerate(kind.cases()):
            if not isinstance(case.task, KeyedTask):
                continue
            path = folder / f"{kind.code}-{i}.state"
            try:
                if not path.exists():
                    path.write_bytes(keep_state(case))
            except ConfigError as error:  # parameters that are functions
                print(f"{kind.code}-{i}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()

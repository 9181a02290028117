"""Keep the state of every task, for the tests of later releases: run it once per release."""

from __future__ import annotations

import sys
from pathlib import Path

from riot_ops import __version__
from riot_ops.errors import ConfigError
from riot_ops.task import KeyedTask, tasks
from riot_ops.testing.states import keep_state


def main() -> None:
    """Write ``tests/data/state/<release>/<code>-<case>.state``; files that exist stay as they are."""
    folder = Path(__file__).parents[1] / "tests" / "data" / "state" / __version__
    folder.mkdir(parents=True, exist_ok=True)
    for kind in tasks():
        for i, case in enumerate(kind.cases() if issubclass(kind, KeyedTask) else ()):
            path = folder / f"{kind.code}-{i}.state"
            try:
                if not path.exists():
                    path.write_bytes(keep_state(case))
            except ConfigError as error:  # parameters that are functions
                print(f"{kind.code}-{i}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()

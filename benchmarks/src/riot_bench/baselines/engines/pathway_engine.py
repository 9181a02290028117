"""The programs on pathway with one worker: ``python -m … PROGRAM FILE...``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from riot_bench.baselines.engines.programs import PROGRAMS, RowCounter, main, read_lines

__all__ = ["build"]


def build(name: str, files: list[str], into: RowCounter) -> Callable[[], None]:
    """Build a program; a key's rows of one commit reach its reducer in one call, in any order."""
    import pathway as pw
    from pathway.internals.parse_graph import G

    G.clear()  # otherwise, programs built earlier run as well
    program = PROGRAMS[name]

    class Line(pw.Schema):
        at: int
        text: bytes

    class Lines(pw.io.python.ConnectorSubject):
        def run(self) -> None:
            for at, line in enumerate(read_lines(files)):
                self.next(at=at, text=line)

    def expand(at: int, text: bytes) -> tuple[Any, ...]:
        pairs = enumerate(program.expand(text))
        return tuple((key, (at, n), pw.wrap_py_object(value)) for n, (key, value) in pairs)

    def step(stored: Any, rows_of_commit: list[Any]) -> Any:
        state, rows = (None, []) if stored is None else (stored.value[0], [])
        for (_, value), _ in sorted(rows_of_commit, key=lambda one: one[0][0]):
            state, more = program.step(state, value.value)
            rows += more
        return pw.wrap_py_object((state, rows))

    def change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        for result in row["rows"].value[1] if is_addition else ():
            into.add(result)

    lines = pw.io.python.read(Lines(), schema=Line, autocommit_duration_ms=100)
    each = tuple[tuple[str, tuple[int, int], pw.PyObjectWrapper], ...]
    pairs = lines.select(pair=pw.apply_with_type(expand, each, pw.this.at, pw.this.text)).flatten(pw.this.pair)
    pairs = pairs.select(key=pw.this.pair[0], place=pw.this.pair[1], value=pw.this.pair[2])
    results = pairs.groupby(pw.this.key).reduce(rows=pw.reducers.stateful_many(step)(pw.this.place, pw.this.value))
    pw.io.subscribe(results, on_change=change)
    return lambda: pw.run(monitoring_level=pw.MonitoringLevel.NONE)


if __name__ == "__main__":
    main(build)

"""Write what ``riot-ops bench NAME --json`` printed into the tables of docs/benchmarks.md.

``tools/write_benchmarks.py FILE...``: runs of one benchmark in several files, of several days say, are put together;
a table's row gets the median and the range of all of them, the number of runs, and the load of the machine. Rows of
what is in no file stay as they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from riot_bench.harness.measure import Measure, span
from riot_bench.suites.riotbench.tables import loads, markdown

TARGET = Path(__file__).resolve().parent.parent / "docs" / "benchmarks.md"
TITLES = "| measure | median | range | runs | load | unit | reach | against / how |"
RULE = "|---|---:|---:|---:|---:|---|---:|---|"
ROW = re.compile(r"^\| `(?P<name>[^`]+)` \|")
#: Suites whose tables stand beside the paper's figures, and what their rows are.
PAPER = {"micro": "task", "app": "application"}


def together(lines: Sequence[str]) -> list[Measure]:
    """The measures of all lines, those of one name as one."""
    runs: dict[tuple[str, bool], list[Measure]] = {}
    for line in filter(None, map(str.strip, lines)):
        one = Measure.from_json(line)
        runs.setdefault((one.measure, on_spark(one)), []).append(one)
    return [Measure.of_runs(of_one) for of_one in runs.values()]


def on_spark(measure: Measure) -> bool:
    """Whether it is one of those that have the same name with both runners, and of Spark."""
    return measure.measure.partition("/")[0] in PAPER and "Spark" in measure.against


def row(measure: Measure) -> str:
    """A row of a table."""
    cells = (
        f"`{measure.measure}`",
        number(measure.value),
        span(measure.runs),
        str(len(measure.known)),
        loads(measure),
        measure.unit,
        "" if measure.reach is None else f"{'≤ ' if measure.at_most else ''}{measure.reach:g}",
        measure.against.replace("|", "\\|"),
    )
    return "| " + " | ".join(cells) + " |"


def number(value: float) -> str:
    """With four digits."""
    return f"{float(f'{value:.4g}'):,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def written(text: str, found: Sequence[Measure]) -> str:
    """The document with the measures in its tables; new ones stand behind the last of their suite."""
    plain = {
        m.measure: m
        for m in found
        if (m.measure.partition("/")[0] not in PAPER or "/probe-cost/" in m.measure) and "/operator/" not in m.measure
    }
    lines: list[str] = []
    last: dict[str, int] = {}
    for line in text.splitlines():
        match = ROW.match(line)
        if match:
            name = match["name"]
            line = row(plain.pop(name)) if name in plain else line
            last[name.partition("/")[0]] = len(lines)
        lines.append(line)
    for suite, place in sorted(last.items(), key=lambda item: -item[1]):
        lines[place + 1 : place + 1] = [row(m) for n, m in plain.items() if n.partition("/")[0] == suite]
    text = "\n".join(lines) + "\n"
    for suite, what in PAPER.items():
        of_suite = [m for m in found if m.measure.startswith(f"{suite}/")]
        for place, runner in ((suite, False), (f"{suite} on Spark", True)):
            table = [m for m in of_suite if on_spark(m) == runner and "/probe-cost/" not in m.measure]
            if table:
                text = placed(text, place, markdown(suite, what, table))
    return text


def placed(text: str, name: str, table: Sequence[str]) -> str:
    """The document with rows in the table of a name, instead of those of the same tasks or applications."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if start not in text or end not in text:
        sys.exit(f"{TARGET} lacks the place for {name}, between {start} and {end}")
    first, last = text.index(start) + len(start), text.index(end)
    rows = {label(line): line for line in text[first:last].strip().splitlines()[2:]}
    rows.update((label(line), line) for line in table[2:])
    return text[:first] + "\n" + "\n".join([*table[:2], *rows.values()]) + "\n" + text[last:]


def label(line: str) -> str:
    """The task or application of a row, without what is said of it."""
    return line.split("|")[1].split(maxsplit=1)[0]


def main() -> None:
    """Read the files, write the document."""
    lines = [line for path in sys.argv[1:] for line in Path(path).read_text(encoding="utf-8").splitlines()]
    if not lines:
        sys.exit(__doc__)
    TARGET.write_text(written(TARGET.read_text(encoding="utf-8"), together(lines)), encoding="utf-8")


if __name__ == "__main__":
    main()

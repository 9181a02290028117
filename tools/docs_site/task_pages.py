"""A page for each task, from the registry, its docstring and a run of its example, and the page that lists them."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import re
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
from pages import ROOT, Page, Problem, made
from series_plot import SERIES, series_svg
from task_examples import EXAMPLES, NOON, Example

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.source import Source, registered_sources
from riot_ops.task import Task, registered_tasks
from riot_ops.tasks import PRESETS

__all__ = ["first_line", "index", "kinds", "modules", "pages", "place", "plain", "public_name"]

MADE_BY = "tools/docs_site/task_pages.py"
#: Columns that the runner adds and the examples do not need to show.
BOOKKEEPING = {"seq", "ordinal"}
MAX_CELL = 60


@cache
def formulas() -> dict[str, str]:
    """Return the formulas in LaTeX by the name of the class."""
    return tomllib.loads(Path(__file__).with_name("formulas.toml").read_text(encoding="utf-8"))


def kinds() -> list[type[Task] | type[Source]]:
    """Return all tasks, and the sources that the benchmark counts as tasks."""
    return sorted([*registered_tasks(), *registered_sources()], key=lambda k: (k.category, k.code))


def place(kind: type) -> str:
    """Return where a task's page stands.

    >>> [place(kind) for kind in (t.KalmanFilter, t.PublishMQTT, t.ParseSenML)]
    ['tasks/kalman_filter.md', 'tasks/publish_mqtt.md', 'tasks/parse_sen_ml.md']
    """
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind.__name__)
    return f"tasks/{words.lower()}.md"


def public_name(kind: type) -> str:
    """Return the name under which users import a task.

    >>> public_name(t.KalmanFilter)
    'riot_ops.tasks.KalmanFilter'
    """
    package = ".".join(kind.__module__.split(".")[:3])
    for module in ("riot_ops.tasks", "riot_ops.connectors", f"{package}.operators"):
        with contextlib.suppress(ImportError):
            if kind.__name__ in import_module(module).__all__:
                return f"{module}.{kind.__name__}"
    return f"{kind.__module__}.{kind.__name__}"


def modules() -> dict[str, str]:
    """Return the pages by the files of the tasks."""
    return {Path(inspect.getfile(kind)).relative_to(ROOT).as_posix(): place(kind) for kind in kinds()}


def index() -> str:
    """Return the page that lists all tasks."""
    lines = [
        "# Tasks",
        "",
        "`riot_ops.tasks` offers all but those that one application needs: import these from the package in the name",
        "of the module, such as `riot_ops.dataflows.dspbench.operators`.",
    ]
    category = ""
    for kind in kinds():
        if kind.category != category:
            category = kind.category
            lines += ["", f"## {category}", ""]
            lines += ["| task | code | pattern | σ | state | what it does |", "|---|---|---|---|---|---|"]
        first = first_line(kind)
        lines.append(
            f"| [{kind.__name__}]({place(kind)}) | `{kind.code}` | {kind.pattern} | {kind.selectivity} "
            f"| {'yes' if kind.stateful else ''} | {first} |"
        )
    names = {kind.__name__: place(kind) for kind in kinds()}
    lines += [
        "",
        "## Settings with codes",
        "",
        "Settings of a task that are tasks of the benchmarks; `riot-ops run micro` takes their codes, too:",
        "",
        "| code | task | setting |",
        "|---|---|---|",
    ]
    lines += [f"| `{code}` | [{name}]({names[name]}) | {text} |" for code, (name, text) in sorted(PRESETS.items())]
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Return a docstring's line without the roles of its references."""
    return re.sub(r":\w+:`~?([\w.]+)`", r"`\1`", text)


def first_line(kind: type) -> str:
    """Return the first line of a task's docstring."""
    return plain((inspect.getdoc(kind) or "").splitlines()[0])


def pages() -> Iterator[Page]:
    """Give the page of each task."""
    for kind in kinds():
        yield made(place(kind), page(kind), MADE_BY)


def page(kind: type[Task] | type[Source]) -> str:
    """Return a task's page."""
    name = public_name(kind)
    state = "state per key" if kind.stateful else "no state"
    summary = plain(" ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split()))
    source = Path(inspect.getfile(kind)).relative_to(ROOT).as_posix()
    parts = [
        f"# {kind.__name__} {{ #{name} data-toc-label='{kind.__name__}' }}",
        summary,
        f"`{kind.code}` · {kind.category} · {kind.pattern} {kind.selectivity} · {state} · "
        f"[source](../../{source}#L{inspect.getsourcelines(kind)[1]})",
    ]
    if kind.__name__ in formulas():
        parts.append(f"```math\n{formulas()[kind.__name__].strip()}\n```")
    if kind.__name__ in SERIES:
        parts.append(f"```picture\n{series_svg(kind.__name__)}\n```")
    if issubclass(kind, Task):
        if kind.__name__ not in EXAMPLES:
            raise Problem(f"{source}:1: {kind.__name__} has no example in tools/docs_site/task_examples.py")
        parts += _example(kind, EXAMPLES[kind.__name__])
    parts += ["## Reference", f"::: {kind.__module__}.{kind.__name__}\n    options:\n      show_root_heading: false\n"
              "      show_root_toc_entry: false\n      members: false\n      heading_level: 3"]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _example(kind: type[Task], example: Example) -> list[str]:
    """Return the same task on single events, on a table and in a running stream, with what came out."""
    scope: dict[str, Any] = {"ro": ro, "t": t}
    imports = ["import riot_ops as ro"]
    if "t." in example.task:
        imports.append("from riot_ops import tasks as t")
    if "operators." in example.task:
        package = public_name(kind).rpartition(".")[0]
        imports.append(f"from {package.rpartition('.')[0]} import operators")
        scope["operators"] = import_module(package)
    shown = [{k: v for k, v in row.items() if k != "seq" or "seq" in example.rows[0]} for row in example.rows]
    rows = "rows = [\n" + "".join(f"    {_source(row)},\n" for row in shown) + "]"
    if "datetime(" in rows:
        imports.insert(0, "from datetime import UTC, datetime\n")
    begin = "\n".join([*imports, *(["", example.before.rstrip()] if example.before else []), ""])
    setup = f"{begin}\n{rows}\ntask = {example.task}"
    try:
        outputs = _run(example, scope)
    except Exception as error:
        raise Problem(f"tools/docs_site/task_examples.py:1: the example of {kind.__name__} fails: {error!r}") from error
    one, frame, stream, errors = outputs
    rejected = f"\n\n`result.errors`, the rejected records:\n\n{_table(errors)}" if errors else ""
    schema = ", ".join(f'"{f.name}": "{f.type}"' for f in pa.Table.from_pylist(example.rows).schema)
    tabs = {
        "One event": "session = task.session()\nfor row in rows:\n    print(session.push(row))"
        + ("\nprint(session.flush())" if one[1] else ""),
        "A table": 'import pyarrow as pa\n\nro.apply(task, pa.Table.from_pylist(rows), on_error="drop")',
        "A running stream": 'flow = ro.Dataflow("example")\n'
        f'records = flow.source("records", schema={{{schema}}})\n'
        'records.to(task, id="result").to("out")\nresult = flow.run(rows)\nresult["result"]',
    }
    found = {
        "One event": "```text\n" + "\n".join(_shortened(repr_) for repr_ in one[0] + one[1]) + "\n```",
        "A table": _table(frame),
        "A running stream": _table(stream) + rejected,
    }
    parts = ["## Three ways to run it", f"```python\n{setup}\n```"]
    for title, code in tabs.items():
        body = f"```python\n{code}\n```\n\n{found[title]}"
        parts.append(f'=== "{title}"\n\n{textwrap.indent(body, "    ")}')
    return parts


def _run(
    example: Example, scope: dict[str, Any]
) -> tuple[tuple[list[str], list[str]], list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Run an example in three ways; return the printed lines, and the records of table and stream."""
    with contextlib.redirect_stderr(io.StringIO()), _silent():
        exec(example.before, scope)
        task: Task = eval(example.task, scope)
        session = task.session()
        lines = [_source([_trimmed(row, example) for row in session.push(row)]) for row in example.rows]
        rest = session.flush()
        end = [_source([_trimmed(row, example) for row in rest])] if rest else []
        table = pa.Table.from_pylist(example.rows)
        frame = ro.apply(task, table, on_error="drop").to_pylist()
        flow = ro.Dataflow("example")
        flow.source("records", schema=table.schema).to(task, id="result").to("out")
        result = flow.run(example.rows)
        errors = [
            {"reason": row["reason"], "message": row["message"], "record": row["raw"]}
            for row in (result.errors.to_pylist() if result.errors is not None else [])
        ]
    return (
        (lines, end),
        [_trimmed(row, example) for row in frame],
        [_trimmed(row, example) for row in result["result"].to_pylist()],
        errors,
    )


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep the log of rejected records away: the page shows them."""
    logger = logging.getLogger("riot_ops")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _trimmed(row: Mapping[str, Any], example: Example) -> dict[str, Any]:
    return {k: v for k, v in row.items() if k not in BOOKKEEPING or k in example.rows[0]}


def _source(value: Any) -> str:
    """Return a value as Python writes it, times in UTC by their short form.

    >>> _source([{"at": datetime(2024, 5, 1, 12, tzinfo=UTC), "x": 0.1 + 0.2}])
    '[{"at": datetime(2024, 5, 1, 12, 0, tzinfo=UTC), "x": 0.3}]'
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_source(k)}: {_source(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_source, value)) + "]"
    if isinstance(value, datetime):
        return (
            repr(value.astimezone(UTC)).replace("datetime.datetime", "datetime").replace("datetime.timezone.utc", "UTC")
        )
    if isinstance(value, float):
        return repr(float(f"{value:.6g}"))
    if isinstance(value, (bytes, str)) and len(value) > 4 * MAX_CELL:
        return f"{value[: 4 * MAX_CELL]!r}…"
    if isinstance(value, str) and '"' not in value and "\\" not in value:
        return f'"{value}"'
    return repr(value)


def _shortened(text: str, limit: int = 400) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def _table(rows: list[dict[str, Any]]) -> str:
    """Return records as a table."""
    if not rows:
        return "No records."
    names = list(dict.fromkeys(name for row in rows for name in row))
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(_cell(row.get(name)) for name in names)} |" for row in rows]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if value is None:
        return "*null*"
    if isinstance(value, datetime):
        text = f"{value.astimezone(UTC):%H:%M:%S.%f}".rstrip("0").rstrip(".")
        return text if value.date() == NOON.date() else f"{value.astimezone(UTC):%Y-%m-%d} {text}"
    text = value if isinstance(value, str) else _source(value)
    text = text if len(text) <= MAX_CELL else f"{text[:MAX_CELL]}…"
    return "`" + text.replace("|", "¦").replace("`", "'") + "`" if re.search(r"[^\w .:-]", text) else text or "`''`"

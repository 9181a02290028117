"""Every application on either runner, on one partition and two, whole, cut and restarted: that all come to the same."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from riot_bench.harness.feeds import feed
from riot_bench.harness.validation import compare, plain_results
from riot_bench.suites.streambench.forms import digest
from riot_ops import streams
from riot_ops.core.errors import ConnectorError
from riot_ops.core.operator import clocks
from riot_ops.core.source import Offset, Source, WrappedSource
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.applications import Application
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.testing import exact

__all__ = [
    "REFERENCE",
    "Case",
    "Outcome",
    "Variant",
    "case",
    "failure",
    "in_process",
    "on_spark",
    "together",
    "variants",
]

#: Messages of each source: so many that something of each result comes.
MESSAGES = {"equipment_monitoring": 20_000, "train": 12}
USUAL, STREAM, SENSORS = 3000, "city", 12
#: Parts that an input is cut into, and the share of it that is read before a restart.
PARTS, BEFORE = 3, 0.55


@dataclass(frozen=True)
class Variant:
    """A way to run an application.

    Attributes
    ----------
    runner : "local" or "spark"
    partitions : int
        On Spark; in process as many cores.
    form : "whole", "cut" or "restarted"
        In one batch, in several, or stopped about half way and started again: in process by an error of the source
        between two commits, on Spark by an end of the query.
    """

    runner: str
    partitions: int
    form: str

    @property
    def name(self) -> str:
        """In a word."""
        return f"{self.runner}-{self.partitions}-{self.form}"


#: What all others are held against.
REFERENCE = Variant("local", 1, "whole")
FORMS = ("whole", "cut", "restarted")


def variants(quick: bool = False) -> list[Variant]:
    """All of them, the reference first; in the quick form two on Spark: cut on two partitions, restarted on one.

    >>> len(variants()), len(variants(quick=True))
    (12, 8)
    """
    every = [Variant(runner, n, form) for runner in ("local", "spark") for n in (1, 2) for form in FORMS]
    few = {("spark", 2, "cut"), ("spark", 1, "restarted")}
    return [v for v in every if not quick or v.runner == "local" or (v.runner, v.partitions, v.form) in few]


@dataclass(frozen=True)
class Case:
    """An application and what it reads.

    Attributes
    ----------
    application : Application
    flow : Dataflow
    sources : mapping of str to Source
        That end.
    messages : int
        Of each source.
    """

    application: Application
    flow: Dataflow
    sources: Mapping[str, Source]
    messages: int

    @property
    def name(self) -> str:
        """The application's."""
        return self.application.name

    @property
    def streams(self) -> list[str]:
        """What ends in its sinks, and the errors."""
        found = {e.source for sink in self.flow.kind("sink") for e in self.flow.inputs(sink.id)}
        return [*sorted(found), ERRORS_STREAM]


@dataclass(frozen=True)
class Outcome:
    """What an application came to in one variant.

    Attributes
    ----------
    application : str
    variant : Variant
    digest : str
        Of all records of all streams, in any order; empty where the run failed.
    records : mapping of str to int
        By stream.
    reason : str
        Why it failed.
    """

    application: str
    variant: Variant
    digest: str
    records: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""


class _First(WrappedSource):
    """The first messages of a source, which ends with them or not; or fails there, as a source does that is lost."""

    def __init__(self, source: Source, messages: int, then: str = "end") -> None:
        super().__init__(source)
        self.messages, self.then = messages, then

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        left = self._left(start)
        if left <= 0 and self.then == "fail":
            raise ConnectorError(f"the source is lost behind message {self.messages}")
        return self.source.latest(start, left if limit is None else min(limit, left)) if left > 0 else start

    def finished(self, offset: Offset) -> bool:
        return self.source.finished(offset) or (self.then == "end" and self._left(offset) <= 0)

    def waits(self) -> bool:
        return self.then != "end"

    def _left(self, offset: Offset) -> int:
        done = self.source.count(self.source.initial(), offset)
        assert done is not None
        return self.messages - done


def case(one: Application, folder: Path, seed: int = 7) -> Case:
    """An application over generated messages; its stores lie below the folder."""
    n = MESSAGES.get(one.name, USUAL)
    if one.inputs:
        made = {stream: streams.generate(stream, messages=n, seed=seed) for stream in set(one.inputs.values())}
        return Case(one, one.builder(), {name: made[stream] for name, stream in one.inputs.items()}, n)
    if one.name == "stats":  # of few sensors, so that windows fill
        return Case(one, one.builder(STREAM), {STREAM: streams.generate(STREAM, SENSORS, messages=n, seed=seed)}, n)
    given = feed(one.name, STREAM, folder)
    return Case(one, given.flow, {**{s: _First(of, n) for s, of in given.sources.items()}, **given.side}, n)


def in_process(given: Case, variant: Variant, folder: Path) -> Outcome:
    """One application in process."""

    def run(sources: Mapping[str, Source] = given.sources, **options: Any) -> Any:
        size = given.messages if variant.form == "whole" else max(1, given.messages // (3 * PARTS))
        return given.flow.run(sources, batch_size=size, cores=variant.partitions, **options)

    if variant.form != "restarted":
        return _outcome(given, variant, run())
    kept: dict[str, Any] = {
        "out": folder / "out",
        "checkpoint": folder / "checkpoint",
        "epoch_rows": max(1, given.messages // 5),
    }
    try:
        run(_first(given, "fail"), **kept)
    except ConnectorError:
        return _outcome(given, variant, run(**kept))
    raise AssertionError(f"{given.name} was not interrupted")


def _first(given: Case, then: str) -> dict[str, Source]:
    """The first part of its sources; those that have nothing end."""
    part = max(1, int(BEFORE * given.messages))
    return {n: s if s.finished(s.initial()) else _First(s, part, then) for n, s in given.sources.items()}


def _outcome(given: Case, variant: Variant, result: Any) -> Outcome:
    rows = [(stream, row) for stream in given.streams for row in result[stream].to_pylist()]
    return _digested(given, variant, rows)


def _digested(given: Case, variant: Variant, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Outcome:
    records = {stream: 0 for stream in given.streams}
    for stream, _ in rows:
        records[stream] += 1
    return Outcome(given.name, variant, digest((stream, exact(dict(row))) for stream, row in rows), records)


def like_plain_python(given: Case) -> bool | None:
    """Whether the results are those of the application in plain Python; None where there is none of it."""
    if not given.application.results:
        return None
    lines = {name: list(_payloads(source)) for name, source in given.sources.items()}
    try:
        wanted = plain_results(given.application, lines, {})
    except ModuleNotFoundError:  # not every application has one
        return None
    result = given.flow.run(given.sources, batch_size=given.messages)
    return all(
        compare(stream, wanted[stream], _tuples(result[stream], fields)).equal
        for stream, fields in given.application.results.items()
    )


def _payloads(source: Source) -> Iterator[bytes]:
    start = source.initial()
    for split in source.splits(start, source.latest(start), 1):
        for batch in source.read(split):
            yield from batch.column("payload").cast("binary").to_pylist()


def _tuples(table: Any, fields: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in fields), strict=True)


def together(flows: Mapping[str, Dataflow]) -> Dataflow:
    """One dataflow of several, which share nothing: the ids of each have its name and a dot in front."""
    nodes: list[Any] = []
    edges: list[Any] = []
    described: dict[str, Any] = {}
    for name, flow in flows.items():
        described = flow.to_dict()
        nodes += [{**node, "id": f"{name}.{node['id']}"} for node in described["nodes"]]
        edges += [{**e, "from": f"{name}.{e['from']}", "to": f"{name}.{e['to']}"} for e in described["edges"]]
    return Dataflow.from_dict({**described, "name": "together", "nodes": nodes, "edges": edges})


def groups(cases: Iterable[Case]) -> list[list[Case]]:
    """Applications that share a query on Spark: those of as many messages, whose sources do not come in one order.

    Nor must they have clocks: in one dataflow these would tell time to the same grain.
    """

    def of(given: Case) -> tuple[int, str]:
        timed = any(clocks(node.task) for node in given.flow.kind("task") if node.task is not None)
        return given.messages, given.name if timed or given.flow.merging != "arrival" else ""

    return [list(several) for _, several in groupby(sorted(cases, key=of), key=of)]


def on_spark(spark: Any, group: Sequence[Case], variant: Variant, folder: Path) -> Iterator[Outcome]:
    """Applications as one query."""
    flow = together({given.name: given.flow for given in group})
    sources = {f"{given.name}.{n}": s for given in group for n, s in given.sources.items()}
    most = None if variant.form == "whole" else -(-group[0].messages // PARTS)
    kept = {"out": folder / "out", "checkpoint": folder / "checkpoint"}
    options: dict[str, Any] = {"partitions": variant.partitions, "max_records": most, **kept}
    if variant.form == "restarted":
        first = {f"{given.name}.{n}": s for given in group for n, s in _first(given, "wait").items()}
        flow.start(spark, first, trigger="available now", **options).wait()
    query = flow.start(spark, sources, **options)
    query.wait()
    errors = query[ERRORS_STREAM].to_pylist()
    for given in group:
        prefix = f"{given.name}."
        rows = [(s, row) for s in given.streams[:-1] for row in query[f"{prefix}{s}"].to_pylist()]
        mine = ({**row, "task": row["task"].removeprefix(prefix)} for row in errors if row["task"].startswith(prefix))
        yield _digested(given, variant, [*rows, *((ERRORS_STREAM, row) for row in mine)])


def failure(error: Exception) -> str:
    """Why something failed.

    >>> failure(KeyError("x"))
    "KeyError: 'x'"
    """
    return f"{type(error).__name__}: {error}"


def run(
    cases: Sequence[Case], wanted: Sequence[Variant], spark: Any, base: Path, tell: Callable[[str], None]
) -> Iterator[Outcome]:
    """All variants of all applications; one that fails is an outcome too.

    Of applications in one query that fails, each runs alone after it, so that only those fail that do.

    Parameters
    ----------
    spark : function
        Gives the session, when it is needed.
    base : Path
        A folder for what runs keep.
    tell : function
        Gets what is begun.
    """
    for variant in wanted:
        waiting = [[given] for given in cases] if variant.runner == "local" else groups(cases)
        while waiting:
            group = waiting.pop(0)
            tell(f"{variant.name}: {', '.join(given.name for given in group)}")
            folder = base / variant.name / group[0].name
            try:
                if variant.runner == "local":
                    yield in_process(group[0], variant, folder)
                else:
                    yield from list(on_spark(spark(), group, variant, folder))
            except Exception as error:  # whatever it is, the others go on
                if len(group) > 1:
                    waiting = [*([given] for given in group), *waiting]
                else:
                    yield Outcome(group[0].name, variant, "", reason=failure(error))
            finally:
                shutil.rmtree(folder, ignore_errors=True)

"""Run every application in all variants: both runners, one and two partitions, whole, cut and restarted."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from riot_bench.harness.application_workloads import application_workload
from riot_bench.harness.digest import digest
from riot_bench.harness.validation import compare, plain_results
from riot_ops import streams
from riot_ops.core.errors import ConnectorError
from riot_ops.core.operator import operator_clocks
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.source import Offset, Source, WrappedSource
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.applications import Application
from riot_ops.testing import exact

__all__ = [
    "REFERENCE",
    "Case",
    "Outcome",
    "Variant",
    "combine",
    "describe_error",
    "prepare_case",
    "run_local",
    "run_on_spark",
    "variants",
]

#: Messages of each source: enough for records in every result stream.
MESSAGES = {"equipment_monitoring": 20_000, "train": 12}
DEFAULT_MESSAGES, STREAM, SENSORS = 3000, "city", 12
#: Parts that the input is cut into, and the share that is read before a restart.
PARTS, RESTART_SHARE = 3, 0.55


@dataclass(frozen=True)
class Variant:
    """A way of running an application.

    Attributes
    ----------
    runner : "local" or "spark"
    partitions : int
        Partitions on Spark, cores in process.
    mode : "whole", "cut" or "restarted"
        In one batch, in several batches, or stopped about half way and restarted: in process by a source error between
        two commits, on Spark by stopping the query.
    """

    runner: str
    partitions: int
    mode: str

    @property
    def name(self) -> str:
        """Runner, partitions and mode in one word."""
        return f"{self.runner}-{self.partitions}-{self.mode}"


#: The variant that all others are compared with.
REFERENCE = Variant("local", 1, "whole")
MODES = ("whole", "cut", "restarted")


def variants(quick: bool = False) -> list[Variant]:
    """Return all variants, the reference first.

    The quick form has two on Spark: cut on two partitions, restarted on one.

    >>> len(variants()), len(variants(quick=True))
    (12, 8)
    """
    every = [Variant(runner, n, form) for runner in ("local", "spark") for n in (1, 2) for form in MODES]
    few = {("spark", 2, "cut"), ("spark", 1, "restarted")}
    return [v for v in every if not quick or v.runner == "local" or (v.runner, v.partitions, v.mode) in few]


@dataclass(frozen=True)
class Case:
    """An application with its dataflow and input.

    Attributes
    ----------
    application : Application
    flow : Dataflow
    sources : mapping of str to Source
        Finite sources.
    messages : int
        Messages of each source.
    """

    application: Application
    flow: Dataflow
    sources: Mapping[str, Source]
    messages: int

    @property
    def name(self) -> str:
        """Name of the application."""
        return self.application.name

    @property
    def streams(self) -> list[str]:
        """Streams that lead to sinks, and the error stream."""
        found = {e.source for sink in self.flow.nodes_of_kind("sink") for e in self.flow.inputs(sink.id)}
        return [*sorted(found), ERRORS_STREAM]


@dataclass(frozen=True)
class Outcome:
    """The outcome of an application in one variant.

    Attributes
    ----------
    application : str
    variant : Variant
    digest : str
        Order-independent digest of all records of all streams; empty if the run failed.
    records : mapping of str to int
        Number of records by stream.
    reason : str
        Why the run failed.
    """

    application: str
    variant: Variant
    digest: str
    records: Mapping[str, int] = field(default_factory=dict)
    reason: str = ""


class _FirstMessages(WrappedSource):
    """The first messages of a source, which then ends, waits, or fails as if the connection were lost."""

    def __init__(self, source: Source, messages: int, then: str = "end") -> None:
        super().__init__(source)
        self.messages, self.then = messages, then

    def latest(self, start: Offset, limit: int | None = None) -> Offset:
        left = self._left(start)
        if left <= 0 and self.then == "fail":
            raise ConnectorError(f"the source is lost after message {self.messages}")
        return self.source.latest(start, left if limit is None else min(limit, left)) if left > 0 else start

    def finished(self, offset: Offset) -> bool:
        return self.source.finished(offset) or (self.then == "end" and self._left(offset) <= 0)

    def waits(self) -> bool:
        return self.then != "end"

    def _left(self, offset: Offset) -> int:
        done = self.source.count(self.source.initial(), offset)
        assert done is not None
        return self.messages - done


def prepare_case(one: Application, folder: Path, seed: int = 7) -> Case:
    """Prepare an application over generated messages; its stores are below ``folder``."""
    n = MESSAGES.get(one.name, DEFAULT_MESSAGES)
    if one.inputs:
        made = {stream: streams.generate(stream, messages=n, seed=seed) for stream in set(one.inputs.values())}
        return Case(one, one.builder(), {name: made[stream] for name, stream in one.inputs.items()}, n)
    if one.name == "stats":  # few sensors, so that windows fill
        return Case(one, one.builder(STREAM), {STREAM: streams.generate(STREAM, SENSORS, messages=n, seed=seed)}, n)
    case = application_workload(one.name, STREAM, folder)
    return Case(one, case.flow, {**{s: _FirstMessages(of, n) for s, of in case.sources.items()}, **case.side_inputs}, n)


def run_local(case: Case, variant: Variant, folder: Path) -> Outcome:
    """Run an application in process."""

    def run(sources: Mapping[str, Source] = case.sources, **options: Any) -> Any:
        size = case.messages if variant.mode == "whole" else max(1, case.messages // (3 * PARTS))
        return case.flow.run(sources, batch_size=size, cores=variant.partitions, **options)

    if variant.mode != "restarted":
        return _outcome(case, variant, run())
    storage: dict[str, Any] = {
        "out": folder / "out",
        "checkpoint": folder / "checkpoint",
        "epoch_rows": max(1, case.messages // 5),
    }
    try:
        run(_first_part(case, "fail"), **storage)
    except ConnectorError:
        return _outcome(case, variant, run(**storage))
    raise AssertionError(f"{case.name} was not interrupted")


def _first_part(case: Case, then: str) -> dict[str, Source]:
    """Return the first part of each source; an empty source is unchanged."""
    part = max(1, int(RESTART_SHARE * case.messages))
    return {n: s if s.finished(s.initial()) else _FirstMessages(s, part, then) for n, s in case.sources.items()}


def _outcome(case: Case, variant: Variant, result: Any) -> Outcome:
    rows = [(stream, row) for stream in case.streams for row in result[stream].to_pylist()]
    return _to_outcome(case, variant, rows)


def _to_outcome(case: Case, variant: Variant, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> Outcome:
    records = {stream: 0 for stream in case.streams}
    for stream, _ in rows:
        records[stream] += 1
    return Outcome(case.name, variant, digest((stream, exact(dict(row))) for stream, row in rows), records)


def matches_plain_python(case: Case) -> bool | None:
    """Return whether the results equal those of plain Python; None if the application has no such baseline."""
    if not case.application.results:
        return None
    lines = {name: list(_payloads(source)) for name, source in case.sources.items()}
    try:
        wanted = plain_results(case.application, lines, {})
    except ModuleNotFoundError:  # not every application has one
        return None
    result = case.flow.run(case.sources, batch_size=case.messages)
    return all(
        compare(stream, wanted[stream], _tuples(result[stream], fields)).equal
        for stream, fields in case.application.results.items()
    )


def _payloads(source: Source) -> Iterator[bytes]:
    start = source.initial()
    for split in source.splits(start, source.latest(start), 1):
        for batch in source.read(split):
            yield from batch.column("payload").cast("binary").to_pylist()


def _tuples(table: Any, fields: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    return zip(*(table.column(name).to_pylist() for name in fields), strict=True)


def combine(flows: Mapping[str, Dataflow]) -> Dataflow:
    """Combine several dataflows into one without sharing; each id is prefixed with its dataflow's name and a dot."""
    nodes: list[Any] = []
    edges: list[Any] = []
    described: dict[str, Any] = {}
    for name, flow in flows.items():
        described = flow.to_dict()
        nodes += [{**node, "id": f"{name}.{node['id']}"} for node in described["nodes"]]
        edges += [{**e, "from": f"{name}.{e['from']}", "to": f"{name}.{e['to']}"} for e in described["edges"]]
    return Dataflow.from_dict({**described, "name": "together", "nodes": nodes, "edges": edges})


def query_groups(cases: Iterable[Case]) -> list[list[Case]]:
    """Group the applications that can share a query on Spark.

    They have the same number of messages, merge their sources by arrival, and have no tasks with clocks: within one
    dataflow all clocks would have the same resolution.
    """

    def of(case: Case) -> tuple[int, str]:
        timed = any(operator_clocks(node.task) for node in case.flow.nodes_of_kind("task") if node.task is not None)
        return case.messages, case.name if timed or case.flow.merging != "arrival" else ""

    return [list(several) for _, several in groupby(sorted(cases, key=of), key=of)]


def run_on_spark(spark: Any, group: Sequence[Case], variant: Variant, folder: Path) -> Iterator[Outcome]:
    """Run a group of applications as one query."""
    flow = combine({case.name: case.flow for case in group})
    sources = {f"{case.name}.{n}": s for case in group for n, s in case.sources.items()}
    most = None if variant.mode == "whole" else -(-group[0].messages // PARTS)
    storage = {"out": folder / "out", "checkpoint": folder / "checkpoint"}
    options: dict[str, Any] = {"partitions": variant.partitions, "max_records": most, **storage}
    if variant.mode == "restarted":
        first = {f"{case.name}.{n}": s for case in group for n, s in _first_part(case, "wait").items()}
        flow.start(spark, first, trigger="available now", **options).wait()
    query = flow.start(spark, sources, **options)
    query.wait()
    errors = query[ERRORS_STREAM].to_pylist()
    for case in group:
        prefix = f"{case.name}."
        rows = [(s, row) for s in case.streams[:-1] for row in query[f"{prefix}{s}"].to_pylist()]
        mine = ({**row, "task": row["task"].removeprefix(prefix)} for row in errors if row["task"].startswith(prefix))
        yield _to_outcome(case, variant, [*rows, *((ERRORS_STREAM, row) for row in mine)])


def describe_error(error: Exception) -> str:
    """Format an error with its type.

    >>> describe_error(KeyError("x"))
    "KeyError: 'x'"
    """
    return f"{type(error).__name__}: {error}"


def run_variants(
    cases: Sequence[Case], wanted: Sequence[Variant], spark: Any, base: Path, log: Callable[[str], None]
) -> Iterator[Outcome]:
    """Run all variants of all applications; a failed run is an outcome, too.

    If a query of several applications fails, each of them runs again alone, so that only the faulty ones fail.

    Parameters
    ----------
    cases : sequence of Case
    wanted : sequence of Variant
    spark : function
        Returns the session, which is started when it is first needed.
    base : Path
        Folder for outputs and checkpoints.
    log : function
        Called with the name of each run that begins.
    """
    for variant in wanted:
        waiting = [[case] for case in cases] if variant.runner == "local" else query_groups(cases)
        while waiting:
            group = waiting.pop(0)
            log(f"{variant.name}: {', '.join(case.name for case in group)}")
            folder = base / variant.name / group[0].name
            try:
                if variant.runner == "local":
                    yield run_local(group[0], variant, folder)
                else:
                    yield from list(run_on_spark(spark(), group, variant, folder))
            except Exception as error:  # any error: the other runs continue
                if len(group) > 1:
                    waiting = [*([case] for case in group), *waiting]
                else:
                    yield Outcome(group[0].name, variant, "", reason=describe_error(error))
            finally:
                shutil.rmtree(folder, ignore_errors=True)

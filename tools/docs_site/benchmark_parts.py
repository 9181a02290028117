"""The generated parts of docs/dataflows/: diagrams, and how many messages each step emits.

All else on those pages is written by hand, and left alone.
"""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import application_parts

from riot_ops import dataflows, streams
from riot_ops.connectors.retry import close_shared_clients
from riot_ops.core.schema import SCHEMAS
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.local_services import LocalServices
from riot_ops.dataflows.riotbench.pred import MODELS, UPDATES_SCHEMA
from riot_ops.graph.nodes import Edge
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.models import ModelStore
from riot_ops.tasks.plot import plot_lines

__all__ = ["parts"]

#: Messages of each run; few, as STATS draws a chart for each set of results.
MESSAGES, SENSORS, SEED = 1_000, 10, 3
#: Of the predicting tasks of PRED.
INSTANCES = 2

#: The benchmark's selectivity of each step (messages per source message), by its letters; see the pages.
PER_OBSERVATION = "N: 5 / 10 / 11 / 1"
BENCHMARK = {
    "etl": {
        "parse": PER_OBSERVATION,
        "range": PER_OBSERVATION,
        "bloom": PER_OBSERVATION,
        "interpolate": PER_OBSERVATION,
        "join": "1",
        "annotate": "1",
        "insert": "1",
        "senml": "1",
        "publish": "1",
        "sink": "2",
    },
    "stats": {
        "parse": "N: 5 / 8",
        "bloom": "N r",
        "avg": "N r, after W of a key",
        "kalman": "N r",
        "slr": "N r, after W of a key",
        "dac": "N r",
        "publish_avg": "N r",
        "publish_slr": "N r",
        "publish_dac": "N r",
        "publish": "3 N r",
    },
    "stats_plots": {
        "parse": "N",
        "avg": "N' / W",
        "kalman": "N'",
        "slr": "N', after W of a key",
        "dac": "1 or 0",
    },
    "pred": {
        "parse": "1",
        "updates": "1 per update",
        "dtc": "1",
        "mlr": "1",
        "avg": "1 / W",
        "error": "1",
        "publish_classes": "1",
        "publish_error": "1",
        "publish": "2",
    },
    "pred_plots": {},
    "train": {
        "range": "1",
        "mlt": "1",
        "label": "1",
        "dtt": "1",
        "upload_mlr": "1",
        "upload_dtc": "1",
        "publish_mlr": "1",
        "publish_dtc": "1",
        "models": "2",
    },
}


class Run(NamedTuple):
    """An application, and the output of a run."""

    flow: Dataflow
    messages: int
    rows: Mapping[str, int]

    def emitted(self, node: str) -> float:
        """Return the records that a step emits, or a sink gets, per source message."""
        if node in self.rows or self.flow.nodes[node].kind == "task":
            return self.rows.get(node, 0) / self.messages
        return sum(self.emitted(edge.source) for edge in self.flow.inputs(node))


def _counted(flow: Dataflow, source: Any, messages: int) -> Run:
    """Run a dataflow with every step ending in a sink as well: the summary then counts them all."""
    seen = Dataflow.from_dict(flow.to_dict())
    ends = {edge.source for sink in seen.nodes_of_kind("sink") for edge in seen.inputs(sink.id)}
    seen.sink("seen", *(seen.stream(node.id) for node in seen.nodes_of_kind("task") if node.id not in ends))
    summary = seen.run(source).summary
    if summary.errors:
        raise SystemExit(f"{flow.name}: {summary.errors} records were rejected: {summary.reasons}")
    return Run(flow, messages, dict(summary.rows))


def _source(stream: str) -> Source:
    return streams.generate(stream, SENSORS, messages=MESSAGES, seed=SEED)


def _sensors(stream: str) -> list[str]:
    wide = streams.generate(stream, SENSORS, messages=MESSAGES, seed=SEED, format="wide")
    start = wide.initial()
    names: set[str] = set()
    for split in wide.splits(start, wide.latest(start), 1):
        for batch in wide.read(split):
            names.update(batch.column(SCHEMAS[stream].id_field).to_pylist())
    return sorted(names)


@contextmanager
def _around(stream: str) -> Iterator[LocalServices]:
    with tempfile.TemporaryDirectory() as folder:
        yield LocalServices(stream, Path(folder))
        close_shared_clients()  # the table's file is removed with the folder


def _etl(stream: str) -> dict[str, Run]:
    with _around(stream) as around:
        return {"etl": _counted(around.etl(_sensors(stream)), _source(stream), MESSAGES)}


def _stats(stream: str) -> dict[str, Run]:
    publish = {"url": "memory://docs", "topic": f"stats/{stream}"}
    forms = {
        "stats": dataflows.stats(stream, known_sensors=_sensors(stream), publish=publish),
        "stats_plots": dataflows.stats(stream, form="plots"),
    }
    with mock.patch.object(plot_lines, "svg_chart", return_value=b""):  # ten thousand, which are counted alone
        return {name: _counted(flow, _source(stream), MESSAGES) for name, flow in forms.items()}


def _learning(stream: str) -> dict[str, Run]:
    """TRAIN, and PRED with its models; the names of its first two models arrive as updates."""
    with _around(stream) as around:
        ticks = around.load(_source(stream))
        train = _counted(around.train(), ticks, ticks.num_rows)
        store = ModelStore.open(around.models_url)
        news = [{"seq": i, "payload": name.encode(), "topic": MODELS} for i, name in enumerate(store.names()[-2:])]
        sources = {MODELS: MemorySource(news, schema=UPDATES_SCHEMA), stream: _source(stream)}
        newest = {"classifier": store.newest("DTC"), "regression": store.newest("MLR")}
        plots = dataflows.pred(stream, form="paper", store=around.models_url, charts="memory://docs", **newest)
        return {
            "train": train,
            "pred": _counted(around.pred(INSTANCES), sources, MESSAGES),
            "pred_plots": _counted(plots, sources, MESSAGES),
        }


def _reads(flow: Dataflow, node: str) -> str:
    """Return the edges into a step."""

    def one(edge: Edge) -> str:
        spread = edge.distribution
        fields = f"({', '.join(spread.fields)})" if spread.fields else ""
        how = "" if spread.kind == "forward" else f" · {spread.kind}{fields}"
        return f"{'the stream' if edge.source in SCHEMAS else edge.source}{how}"

    return ", ".join(one(edge) for edge in flow.inputs(node))


def _table(runs: Mapping[str, Run], figures: Mapping[str, str], known: Collection[str] = ()) -> str:
    """Messages per source message of each step that is not known yet, by stream, beside the benchmark's figures."""
    whole = max((run.flow for run in runs.values()), key=lambda flow: len(flow.nodes))
    lines = [
        f"| step | task | reads | {' | '.join(runs)} | RIoTBench |",
        f"|---|---|---|{'---:|' * len(runs)}---|",
    ]
    for node in whole.nodes.values():
        if node.kind == "source" or node.id in known:
            continue
        cells = [f"{r.emitted(node.id):.3g}" if node.id in r.flow.nodes else "–" for r in runs.values()]
        task = "sink" if node.task is None else f"`{node.task.code}`"
        says = figures.get(node.id, "")
        lines.append(f"| {node.id} | {task} | {_reads(whole, node.id)} | {' | '.join(cells)} | {says} |")
    return "\n".join(lines) + "\n"


def parts() -> dict[str, str]:
    """Return the generated parts by name."""
    runs: dict[str, dict[str, Run]] = {name: {} for name in BENCHMARK}
    for make in (_etl, _stats, _learning):
        for stream in SCHEMAS:
            for name, run in make(stream).items():
                runs[name][stream] = run
    found = application_parts.parts()
    for name, by_stream in runs.items():
        found[f"{name}_diagram"] = f"```mermaid\n{by_stream['city'].flow.diagram()}```\n"
        known = runs["pred"]["grid"].flow.nodes if name == "pred_plots" else ()
        found[f"{name}_table"] = _table(by_stream, BENCHMARK[name], known)
    return found

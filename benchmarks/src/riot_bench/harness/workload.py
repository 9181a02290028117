"""A dataflow together with its input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from riot_ops import dataflows
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.measure.probe_report import Report

__all__ = ["Workload", "tumbling_stats"]


def tumbling_stats() -> Dataflow:
    """Build STATS as every implementation computes it: averages of tumbling blocks of ten values, no meta fields."""
    return dataflows.stats(average_window=10, sliding=False, meta=False)


@dataclass(frozen=True)
class Workload:
    """A dataflow and its sources.

    Attributes
    ----------
    flow : Dataflow
    sources : mapping of name to source
        Unbounded sources, which a run paces.
    side_inputs : mapping of name to source
        Sources that are not paced, such as model updates.
    max_batch : int
        Maximum number of messages of a batch.
    """

    flow: Dataflow
    sources: Mapping[str, Source]
    side_inputs: Mapping[str, Source] = field(default_factory=dict)
    max_batch: int = 65_536

    def silent_streams(self, report: Report) -> tuple[str, ...]:
        """Return the streams that lead to a sink and delivered no record."""
        delivered = {e.source for sink in self.flow.nodes_of_kind("sink") for e in self.flow.inputs(sink.id)}
        return tuple(n for n in self.flow.nodes if n in delivered and not report.rows.get(n))

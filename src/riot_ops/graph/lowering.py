"""The graph that runs: sources get an intake, distributions on edges become steps of their own.

An :class:`~riot_ops.intake.step.Intake` has the id of its source, and stands in place of what the source delivers.

An edge that spreads records over instances turns into a :class:`Route` in front of its task, which
adds the instance of each record as a column. The instance then is part of the task's key, so that
both runners treat instances alike, and no runner knows about distributions.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.operator import KeyedOperator, Operator
from riot_ops.core.order import next_sub
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Distribution, Edge, edge_subs
from riot_ops.intake.step import Intake
from riot_ops.kernels.arrow import int_column
from riot_ops.kernels.hashing import hash_columns

__all__ = ["INSTANCE", "Route", "Step", "lower"]

#: Column with the instance of a record between a Route and its task.
INSTANCE = "_instance"


@dataclass(frozen=True)
class Route:
    """Adds the instance of each record, duplicating records for a broadcast."""

    id: str
    distribution: Distribution

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        spread = self.distribution
        p = spread.parallelism or 1
        n = batch.num_rows
        if spread.kind == "broadcast":
            rows = np.repeat(np.arange(n), p)
            copies = np.tile(np.arange(p), n)
            batch = batch.take(pa.array(rows))
            batch = batch.append_column(next_sub(batch.schema.names), pa.array(copies))
            return batch.append_column(INSTANCE, pa.array(copies, pa.int64()))
        return self._routed(batch, self._instances(batch, p), p, dead)

    def _instances(self, batch: pa.RecordBatch, p: int) -> npt.NDArray[np.int64]:
        spread = self.distribution
        if spread.kind == "hash":
            h1, _ = hash_columns([batch.column(f) for f in spread.fields], batch.num_rows)
            return (h1 % np.uint64(p)).astype(np.int64)
        if spread.kind == "custom":
            assert spread.router is not None
            return np.asarray(spread.router(batch))
        return int_column(batch.column("seq")) % p

    def _routed(
        self, batch: pa.RecordBatch, instances: npt.NDArray[np.int64], p: int, dead: DeadLetters
    ) -> pa.RecordBatch:
        if instances.shape != (batch.num_rows,) or instances.dtype.kind not in "iu":
            dead.reject(
                batch,
                np.ones(batch.num_rows, np.bool_),
                "bad_instance",
                f"the router of {self.id} must return {batch.num_rows} integers, "
                f"got {instances.dtype} of shape {instances.shape}",
            )
            instances = np.full(batch.num_rows, -1)
        else:
            wrong = (instances < 0) | (instances >= p)
            dead.reject(batch, wrong, "bad_instance", f"the router of {self.id} must return 0 to {p - 1}")
        known = (instances >= 0) & (instances < p)
        batch = batch.append_column(INSTANCE, pa.array(instances.astype(np.int64)))
        return batch if known.all() else batch.filter(pa.array(known))


@dataclass(frozen=True)
class Step:
    """One box of the running graph: an intake, a task or a route, and the streams that it reads."""

    id: str
    operator: Operator | Route | Intake
    inputs: tuple[str, ...]
    #: Fields of the key of its state.
    key: tuple[str, ...] = ()
    #: Fields that decide where it runs; None for a step that runs anywhere.
    partition: tuple[str, ...] | None = None
    #: Most instances that it may run in.
    parallelism: int | None = None
    #: Places of records (``sub`` …) that those of another input have, and some may come without.
    numbered: tuple[str, ...] = ()
    #: What it is called where its id is a planner's own.
    label: str = ""
    #: The schema of its output; None for a route.
    schema: pa.Schema | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        """What it is called in the errors stream."""
        return self.label or self.id

    @property
    def keyed(self) -> bool:
        return isinstance(self.operator, KeyedOperator)


def lower(flow: Graph) -> list[Step]:
    """The steps of a dataflow, each after its inputs."""
    schemas = flow.schemas()
    steps: list[Step] = []
    for node in flow.order():
        if node.kind == "source":
            schema = schemas[node.id]
            steps.append(Step(node.id, Intake(schema), (node.id,), schema=schema))
        if node.task is None:
            continue
        edges = flow.inputs(node.id)
        spread = edges[0].distribution
        key = node.task.by if isinstance(node.task, KeyedOperator) else ()
        partition: tuple[str, ...] | None = key if isinstance(node.task, KeyedOperator) else None
        inputs = tuple(e.source for e in edges)
        if any(_needs_route(e.distribution, key, node.task) for e in edges):
            inputs = tuple(_route(steps, e) for e in edges)
            if partition is not None:
                key, partition = (*key, INSTANCE), (INSTANCE,)
        elif spread.kind == "hash" and partition is not None and set(spread.fields) <= set(key):
            partition = spread.fields  # other fields would spread the records of a key
        elif spread.kind == "one" and partition is not None:
            partition = ()
        places = [edge_subs(e, schemas[e.source]) for e in edges]
        numbered = max(places, key=len) if len({len(one) for one in places}) > 1 else ()
        steps.append(
            Step(node.id, node.task, inputs, key, partition, spread.parallelism, numbered, schema=schemas[node.id])
        )
    return steps


def _needs_route(spread: Distribution, key: tuple[str, ...], task: Operator) -> bool:
    """Whether the instance makes a difference to the result."""
    if spread.kind == "broadcast":
        return True
    if not isinstance(task, KeyedOperator) or (spread.parallelism or 1) == 1:
        return False
    if spread.kind == "hash":
        return not set(spread.fields) <= set(key)
    return spread.kind in ("shuffle", "custom")


def _route(steps: list[Step], edge: Edge) -> str:
    name = f"{edge.source}->{edge.target}"
    steps.append(Step(name, Route(name, edge.distribution), (edge.source,)))
    return name

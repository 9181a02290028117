"""Scores that fade, of all things that there are, at every time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried
from riot_ops.core.parameters import Positive
from riot_ops.dataflows.dspbench.operators.center_distance import some_batches
from riot_ops.dataflows.dspbench.operators.time_batches import Numbers, TimeBatchTask
from riot_ops.kernels.arrays.arrow import float_column, joined
from riot_ops.kernels.arrays.index import key_numbers
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, Requirement, State, StateField, next_ordinal, register, with_next_ordinal

__all__ = ["DecayedScores"]


@kernel
def _decay(
    things: Any, scores: Any, edges: Any, factor: Any, threshold: Any, reset: Any, known: Any, total: Any, last: Any,
    out_thing: Any, out_batch: Any, out_total: Any, out_last: Any,
) -> Any:  # fmt: skip
    """All totals at the end of each batch; things are numbered in the order in which they came.

    Returns how many things there are now, and whether totals are to be 0 from the next batch on.
    """
    n = 0
    for b in range(edges.size - 1):
        if reset:
            for k in range(known):
                total[k] = 0.0
            reset = False
        for i in range(edges[b], edges[b + 1]):
            k = things[i]
            if k >= known:
                known = k + 1
                total[k] = 0.0
            total[k] = total[k] * factor + scores[i]
            last[k] = scores[i]
            reset = reset or total[k] > threshold
        for k in range(known):
            out_thing[n] = k
            out_batch[n] = b
            out_total[n] = total[k]
            out_last[n] = last[k]
            n += 1
    return known, reset


@register
@dataclass(frozen=True, kw_only=True)
class DecayedScores(TimeBatchTask):
    """Add up scores of each thing that fade by its further ones, and put out those of all things at every time.

    ``S = S e^-decay + score`` at each score of a thing. When all records of an event time are there, every thing that
    was ever seen comes out with its S and its last score. Has any S come to be above the threshold, all are 0 from then
    on.

    Parameters
    ----------
    thing : str, default "id"
        Field that says what a score is of.
    score : str, default "score"
        Numeric field with the score.
    decay : float > 0, default 0.02
        See above.
    threshold : float > 0, optional
        See above; by default ``0.5 / (1 - e^-decay)``: half of what scores of 1 add up to.
    output : str, default "decayed"
        Field for S.
    time, partial
        A field for the time, and whether the end closes the last batch, see :class:`TimeBatchTask`.
    by : tuple of str, default ()
        Must be empty: the things of all records are looked at together.
    ttl
        Of no use here.

    Shapes and rates
    ----------------
    float64[n] -> float64[times * things], N:M; O(things) per time. The state is a row per thing and the records of the
    latest time. Records have the number and the order of the last of their time, and places by the order in which the
    things were seen first; of other fields they have ``event_time``, the thing and its last score alone.

    Missing values
    --------------
    A record without event time or with a null or NaN as its score is an error. A null thing is a thing like others.

    Errors
    ------
    ``no_event_time``, ``missing``, ``not_finite``; ``late``: a record with a later time came before.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: machine outlier.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> scores = DecayedScores(decay=0.7).session()
    >>> _ = [scores.push({"event_time": datetime(2024, 5, 1, h, tzinfo=UTC), "id": "a", "score": 0.4}) for h in (1, 2)]
    >>> [(row["id"], round(row["decayed"], 3)) for row in scores.flush()]
    [('a', 0.599)]
    """

    code: ClassVar[str] = "DCS"
    category: ClassVar[str] = "Statistical"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:M"

    thing: str = "id"
    score: str = "score"
    decay: Positive = 0.02
    threshold: Positive | None = None
    output: str = "decayed"

    def validate(self) -> None:
        super().validate()
        if self.by:
            raise ConfigError(f"by must be empty, as the things of all records are looked at together; got {self.by!r}")
        names = [self.thing, self.score, self.output, *([] if self.time is None else [self.time])]
        if len(set(names)) < len(names):
            raise ConfigError(f"thing, score, output and time must be different fields, got {', '.join(names)}")

    def numbers(self) -> tuple[str, ...]:
        return (self.score,)

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.thing: "any"}

    def expands(self) -> bool:
        return True

    def writes(self) -> frozenset[str] | None:
        return None

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        kept = [schema.field(name) for name in carried(schema.names)]
        made = [schema.field(self.thing), pa.field(self.score, pa.float64()), pa.field(self.output, pa.float64())]
        return self.timed(
            with_next_ordinal(pa.schema([*kept, *(f for f in made if f.name not in {k.name for k in kept})]))
        )

    def state_fields(self) -> Mapping[str, StateField]:
        return {**super().state_fields(), "things": StateField("rows", initial=None), "reset": StateField("bool")}

    def results(self, batch: pa.RecordBatch, edges: Numbers, state: State) -> pa.RecordBatch:
        schema = self.output_schema(batch.schema)
        if not batch.num_rows:
            return pa.RecordBatch.from_pylist([], schema)
        before = state["things"][0]
        known = 0 if before is None else before.num_rows
        rows = pa.RecordBatch.from_arrays([batch.column(self.thing)], names=["thing"])
        every = rows if before is None else joined([before.select(["thing"]), rows])
        numbers = key_numbers([every.column("thing")], every.num_rows)
        things = numbers[known:]
        # after each batch there are as many things as the highest number so far tells
        most = np.maximum(known, np.maximum.accumulate(things)[edges[1:] - 1] + 1)
        total, last = (_grown(before, name, int(most[-1])) for name in ("total", "last"))
        n = int(most.sum())
        out_thing, out_batch, out_total, out_last = (
            np.empty(n, np.int64),
            np.empty(n, np.int64),
            np.empty(n),
            np.empty(n),
        )
        threshold = 0.5 / -math.expm1(-self.decay) if self.threshold is None else self.threshold
        scores, _ = float_column(batch.column(self.score))
        _, state["reset"][0] = _decay(
            things, scores, edges, math.exp(-self.decay), threshold, bool(state["reset"][0]), known, total, last,
            out_thing, out_batch, out_total, out_last,
        )  # fmt: skip
        _, first = np.unique(numbers, return_index=True)
        names = every.column("thing").take(pa.array(first))
        state["things"][0] = pa.RecordBatch.from_arrays(
            [names, pa.array(total), pa.array(last)], names=["thing", "total", "last"]
        )
        final = batch.take(pa.array(edges[1:] - 1)).take(pa.array(out_batch))
        columns = {name: final.column(name) for name in carried(batch.schema.names)}
        columns |= {self.score: pa.array(out_last), self.output: pa.array(out_total)}
        columns |= {self.thing: names.take(pa.array(out_thing)), next_ordinal(batch.schema.names): pa.array(out_thing)}
        if self.time is not None:
            columns[self.time] = final.column("event_time")
        return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = some_batches()
        yield Case(cls(thing="rack", score="cpu", decay=0.5), batch)
        yield Case(cls(thing="rack", score="memory", threshold=3.0, output="sum", time="at", partial=False), batch)


def _grown(table: pa.RecordBatch | None, name: str, size: int) -> npt.NDArray[np.float64]:
    """A column with room for more."""
    grown = np.zeros(size)
    if table is not None:
        grown[: table.num_rows] = table.column(name).to_numpy()
    return grown

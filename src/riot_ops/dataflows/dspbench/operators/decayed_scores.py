"""Decayed scores: exponentially decaying sums of all items at every event time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Positive
from riot_ops.dataflows.dspbench.operators.center_distance import example_batches
from riot_ops.dataflows.dspbench.operators.time_batch_task import Numbers, TimeBatchTask
from riot_ops.kernels.arrays.arrow import concat_batches, float_column
from riot_ops.kernels.arrays.index import key_numbers
from riot_ops.kernels.jit import kernel
from riot_ops.task import Case, Requirement, State, StateField, next_ordinal, register, with_next_ordinal

__all__ = ["DecayedScores"]


@kernel
def _decay(
    things: Any, scores: Any, edges: Any, factor: Any, threshold: Any, reset: Any, known: Any, total: Any, last: Any,
    out_thing: Any, out_batch: Any, out_total: Any, out_last: Any,
) -> Any:  # fmt: skip
    """Write all totals at the end of each batch; things are numbered in order of first occurrence.

    Returns the number of known things, and whether the next batch resets the totals to 0.
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
    """Keep a decaying sum of scores per thing, and emit the sums of all things at every event time.

    ``S = S e^-decay + score`` at each score of a thing. When an event time is complete, every thing seen so far is
    emitted with its S and its last score. Once any S exceeds the threshold, all sums are reset to 0 afterwards.

    Parameters
    ----------
    item : str, default "id"
        Field that identifies the thing of a score.
    value : str, default "score"
        Numeric field with the score.
    decay : float > 0, default 0.02
        See above.
    threshold : float > 0, optional
        See above; by default ``0.5 / (1 - e^-decay)``: half of the limit of scores of 1.
    output : str, default "decayed"
        Field for S.
    time, partial
        A field for the time, and whether the end closes the last batch, see :class:`TimeBatchTask`.
    by : tuple of str, default ()
        Must be empty: the things of all records are processed together.
    ttl
        Not supported.

    Shapes and rates
    ----------------
    float64[n] -> float64[times * things], N:M; O(things) per time. The state is a row per thing and the records of the
    latest time. A result has ``seq`` and ordinals of the last record of its time and a further ordinal, the order in
    which the things were first seen; its other fields are ``event_time``, the thing, its last score and S.

    Missing values
    --------------
    A record without event time, or with a null or NaN score, is an error. A null thing is a thing of its own.

    Errors
    ------
    ``no_event_time``, ``missing``, ``not_finite``; ``late``: a record with a later time came earlier.

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

    item: str = "id"
    value: str = "score"
    decay: Positive = 0.02
    threshold: Positive | None = None
    output: str = "decayed"

    def validate(self) -> None:
        super().validate()
        if self.by:
            raise ConfigError(
                f"by must be empty, since the things of all records are processed together; got {self.by!r}"
            )
        names = [self.item, self.value, self.output, *([] if self.time is None else [self.time])]
        if len(set(names)) < len(names):
            raise ConfigError(f"item, value, output and time must be different fields, got {', '.join(names)}")

    def numeric_fields(self) -> tuple[str, ...]:
        return (self.value,)

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.item: "key"}

    def expands(self) -> bool:
        return True

    def writes(self) -> frozenset[str]:
        return frozenset({self.item, self.value, self.output, *(() if self.time is None else (self.time,))})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        carried = [schema.field(name) for name in carried_fields(schema.names)]
        added = [schema.field(self.item), pa.field(self.value, pa.float64()), pa.field(self.output, pa.float64())]
        return self.with_time_field(
            with_next_ordinal(pa.schema([*carried, *(f for f in added if f.name not in {k.name for k in carried})]))
        )

    def state_fields(self) -> Mapping[str, StateField]:
        return {**super().state_fields(), "things": StateField("rows", initial=None), "reset": StateField("bool")}

    def results(self, batch: pa.RecordBatch, edges: Numbers, state: State) -> pa.RecordBatch:
        schema = self.output_schema(batch.schema)
        if not batch.num_rows:
            return pa.RecordBatch.from_pylist([], schema)
        before = state["things"][0]
        known = 0 if before is None else before.num_rows
        rows = pa.RecordBatch.from_arrays([batch.column(self.item)], names=["thing"])
        every = rows if before is None else concat_batches([before.select(["thing"]), rows])
        numbers = key_numbers([every.column("thing")], every.num_rows)
        things = numbers[known:]
        # number of known things after each batch: the highest number so far, plus one
        known_after = np.maximum(known, np.maximum.accumulate(things)[edges[1:] - 1] + 1)
        total, last = (_padded(before, name, int(known_after[-1])) for name in ("total", "last"))
        n = int(known_after.sum())
        out_thing, out_batch, out_total, out_last = (
            np.empty(n, np.int64),
            np.empty(n, np.int64),
            np.empty(n),
            np.empty(n),
        )
        threshold = 0.5 / -math.expm1(-self.decay) if self.threshold is None else self.threshold
        scores, _ = float_column(batch.column(self.value))
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
        columns = {name: final.column(name) for name in carried_fields(batch.schema.names)}
        columns |= {self.value: pa.array(out_last), self.output: pa.array(out_total)}
        columns |= {self.item: names.take(pa.array(out_thing)), next_ordinal(batch.schema.names): pa.array(out_thing)}
        if self.time is not None:
            columns[self.time] = final.column("event_time")
        return pa.RecordBatch.from_arrays([columns[f.name].cast(f.type) for f in schema], schema=schema)

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = example_batches()
        yield Case(cls(item="rack", value="cpu", decay=0.5), batch)
        yield Case(cls(item="rack", value="memory", threshold=3.0, output="sum", time="at", partial=False), batch)


def _padded(table: pa.RecordBatch | None, name: str, size: int) -> npt.NDArray[np.float64]:
    """Copy a column into a longer array, padded with zeros."""
    grown = np.zeros(size)
    if table is not None:
        grown[: table.num_rows] = table.column(name).to_numpy()
    return grown

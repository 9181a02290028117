"""Markov score: how unlikely the latest states of a key are under a Markov chain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import MAX_LENGTH
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.jit import kernel
from riot_ops.kernels.stats.windows import neumaier_add
from riot_ops.models.markov import MarkovModel, load_model, purchase_model
from riot_ops.task import Case, KeyedTask, Requirement, State, StateField, register, with_field

__all__ = ["MarkovScore"]

NOTHING = np.zeros(0)


@kernel
def _score(
    codes: Any, slots: Any, costs: Any, wholes: Any, sliding: Any, threshold: Any, ring: Any, place: Any, seen: Any,
    top: Any, top_rest: Any, bottom: Any, bottom_rest: Any, rows: Any, scores: Any, chains: Any,
) -> Any:  # fmt: skip
    """Write scores above the threshold, their rows and (if ``chains`` has columns) their states; return their number.

    The contribution of a transition is subtracted from the sums when it leaves the window. Since the sums are
    compensated, and a transition contributes at most a few units, no error accumulates.
    """
    window = ring.shape[1]
    found = 0
    for i in range(codes.size):
        s = np.uint64(slots[i])
        c = codes[i]
        at = np.int64(place[s])
        n = seen[s]
        if n > 0:
            last = np.int64(ring[s, (at if at > 0 else window) - 1])
            top[s], top_rest[s] = neumaier_add(top[s], top_rest[s], costs[last, c])
            if bottom.size:
                bottom[s], bottom_rest[s] = neumaier_add(bottom[s], bottom_rest[s], wholes[last])
            if sliding and n >= window:
                old = np.int64(ring[s, at])
                after = np.int64(ring[s, at + 1 if at + 1 < window else 0])
                top[s], top_rest[s] = neumaier_add(top[s], top_rest[s], -costs[old, after])
                if bottom.size:
                    bottom[s], bottom_rest[s] = neumaier_add(bottom[s], bottom_rest[s], -wholes[old])
        ring[s, at] = c
        place[s] = at + 1 if at + 1 < window else 0
        n += 1
        seen[s] = n
        if n < (window if sliding else 2):
            continue
        whole = np.float64((min(n, window) if sliding else n) - 1)
        if bottom.size:
            whole = bottom[s] + bottom_rest[s]
        score = (top[s] + top_rest[s]) / whole if whole > 0.0 else 0.0
        if score > threshold:
            rows[found] = i
            scores[found] = score
            for j in range(chains.shape[1]):  # the latest state is last
                k = place[s] + j
                chains[found, j] = ring[s, k if k < window else k - window] if j >= window - n else -1
            found += 1
    return found


@register
@dataclass(frozen=True, kw_only=True)
class MarkovScore(KeyedTask):
    """Score how unlikely the latest states of each key are, given the transition probabilities of a model.

    Over the states ``s_1 … s_W`` of a window and the transition probabilities P, the score is, by ``metric``,

    - ``miss_probability``: the mean over i = 2 … W of ``1 - P[s_(i-1), s_i]``;
    - ``miss_rate``: the share of those i at which s_i is not the most probable successor of s_(i-1);
    - ``entropy_reduction``: ``Σ_i Σ_(j ≠ s_i) h(s_(i-1), j) / Σ_i Σ_j h(s_(i-1), j)`` with ``h = -P ln P``.

    Parameters
    ----------
    model : str, optional
        Path of a model: a line with the names of the states, separated by commas, then a line per state with the
        probabilities of its successors, see :class:`riot_ops.models.MarkovModel`, which also trains models. By default
        a model of card purchases, trained on generated data, whose states are three letters: amount L, M or H (low to
        high), expensive item in the basket N or H (no, yes), time since the last purchase L, N or S (long to short).
    state : str, default "state"
        Text field with the state.
    metric : "miss_probability", "miss_rate" or "entropy_reduction", default "miss_probability"
        Score, see above.
    window : int, 2 to 1,048,576, default 5
        Number of states in a window.
    scope : "window" or "all", default "window"
        Score the window, from the first full one on, or all transitions so far, from the first one on.
    threshold : float, optional
        Emit only scores above it; by default all scores.
    output : str, default "score"
        Field for the score, from 0 to 1.
    states : str or None, default "states"
        Field for the comma-separated states of the window, the latest last; None: no such field.
    by, ttl
        Key and time to live, see :class:`KeyedTask`.

    Shapes and rates
    ----------------
    text[n] -> float64[n], 1:0/1; O(1) time (O(window) if the states are emitted). State per key: 28 bytes and one
    per state of the window (two for models with more than 256 states), 16 more for ``entropy_reduction``.

    Missing values
    --------------
    A null state is an error (``missing``).

    Errors
    ------
    ``missing``; ``unknown_state``: the model lacks the state. Neither enters the window.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: fraud detection.

    Examples
    --------
    >>> card = MarkovScore(window=3).session()
    >>> [round(out["score"], 2) for s in ("MNN", "MNN", "MNN", "HHS") for out in card.push({"state": s})]
    [0.8, 0.9]
    """

    code: ClassVar[str] = "MKS"
    category: ClassVar[str] = "Predictive"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    model: str | None = None
    state: str = "state"
    metric: Literal["miss_probability", "miss_rate", "entropy_reduction"] = "miss_probability"
    window: Annotated[int, msgspec.Meta(ge=2, le=MAX_LENGTH)] = 5
    scope: Literal["window", "all"] = "window"
    threshold: float | None = None
    output: str = "score"
    states: str | None = "states"

    def validate(self) -> None:
        if self.states == self.output:
            raise ConfigError(f"output and states must be different fields, got {self.output!r} for both")
        _ = self.chain  # raises if the model cannot be read

    @property
    def chain(self) -> MarkovModel:
        """The model in use."""
        return purchase_model() if self.model is None else load_model(self.model)

    def requires(self) -> Mapping[str, Requirement]:
        return {**super().requires(), self.state: "text"}

    def writes(self) -> frozenset[str] | None:
        return frozenset({self.output} if self.states is None else {self.output, self.states})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        schema = with_field(schema, pa.field(self.output, pa.float64()))
        return schema if self.states is None else with_field(schema, pa.field(self.states, pa.string()))

    def state_fields(self) -> Mapping[str, StateField]:
        dtype = "uint8" if len(self.chain.states) <= 256 else "uint16"
        fields = {"ring": StateField(dtype, self.window), "place": StateField("int32"), "seen": StateField("int64")}
        parts = ("top", "bottom") if self.metric == "entropy_reduction" else ("top",)
        return fields | {name + rest: StateField("float64") for name in parts for rest in ("", "_rest")}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        column = batch.column(self.state)
        codes = self._codes(column)
        if not codes.null_count:
            return batch
        empty, unknown = np.asarray(column.is_null()), np.asarray(codes.is_null())
        errors.reject(batch, empty, "missing", f"{self.state} is null")
        errors.reject(batch, unknown & ~empty, "unknown_state", f"the model has no such {self.state}")
        return batch.filter(codes.is_valid())

    def _codes(self, column: pa.Array) -> pa.Array:
        if isinstance(column, pa.DictionaryArray):
            column = column.dictionary_decode()
        return pc.index_in(column.cast(pa.string()), value_set=pa.array(self.chain.states, pa.string()))

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        codes = self._codes(batch.column(self.state)).to_numpy(zero_copy_only=False).astype(np.int64)
        n = codes.size
        rows, scores = np.empty(n, np.int64), np.empty(n)
        chains = np.empty((n, 0 if self.states is None else self.window), np.int32)
        found = _score(
            codes, slots, *_costs(self.chain, self.metric), self.scope == "window",
            -np.inf if self.threshold is None else self.threshold,
            state["ring"], state["place"], state["seen"], state["top"], state["top_rest"],
            state.get("bottom", NOTHING), state.get("bottom_rest", NOTHING), rows, scores, chains,
        )  # fmt: skip
        schema = self.output_schema(batch.schema)
        taken = batch if found == n else batch.take(pa.array(rows[:found]))
        columns = dict(zip(taken.schema.names, taken.columns, strict=True))
        columns[self.output] = pa.array(scores[:found])
        if self.states is not None:
            columns[self.states] = self._joined(chains[:found])
        return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _joined(self, chains: npt.NDArray[np.int32]) -> pa.Array:
        """Join the names of each row's states with commas; -1 means none."""
        here = chains >= 0
        ends = np.concatenate([[0], np.cumsum(here.sum(axis=1))]).astype(np.int32)
        names = pa.array(self.chain.states, pa.string()).take(pa.array(chains[here]))
        return pc.binary_join(pa.ListArray.from_arrays(pa.array(ends), names), ",")

    @classmethod
    def cases(cls) -> Iterable[Case]:
        states = ["MNN", "HHS", "MNN", "LNL", "?", None, "MNN", "HHS", "", "HHS", "MNL", "LHS"]
        keys = ["a", "b", "a", "ü", "a", None, "b", "a", "a", "b", "a", None]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(12), pa.int64()), "key": keys, "state": states})
        yield Case(cls(by=("key",), window=2), batch)
        yield Case(cls(window=3, metric="entropy_reduction", states=None, threshold=0.5), batch)
        yield Case(cls(by=("key",), metric="miss_rate", scope="all", output="surprise"), batch)


@lru_cache(maxsize=16)
def _costs(model: MarkovModel, metric: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    return model.costs(metric)

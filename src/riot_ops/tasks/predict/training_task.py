"""Base class of the training tasks: gather sets of records, and train and emit a model per set."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, ModelError
from riot_ops.core.order import carried_fields
from riot_ops.core.parameters import Count, Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import int_column
from riot_ops.kernels.arrays.hashing import hash_columns
from riot_ops.models.model import Model
from riot_ops.models.store import ModelName, ModelStore, check_store
from riot_ops.task import KeyedTask, Requirement, State, StateField
from riot_ops.tasks.predict.prediction_task import infinite_rows, input_matrix
from riot_ops.tasks.window.collect import collect_blocks

__all__ = ["TrainingTask"]

NEVER = np.iinfo(np.int64).min
RESULTS = pa.schema(
    [
        ("model", pa.string()),
        ("kind", pa.string()),
        ("start_ms", pa.int64()),
        ("end_ms", pa.int64()),
        ("rows", pa.int64()),
        ("metrics", pa.string()),
        ("content", pa.binary()),
    ]
)


@dataclass(frozen=True)
class _TrainingSet:
    """A training set: rows of inputs and targets, the record that completed it, its key, and the time span."""

    row: int
    slot: int
    inputs: npt.NDArray[np.float64]
    targets: pa.Array
    start_ms: int
    end_ms: int


@dataclass(frozen=True, kw_only=True)
class TrainingTask(KeyedTask):
    """A task that trains a model on each set of records and emits it; see its subclasses."""

    category: ClassVar[str] = "Predictive"
    pattern: ClassVar[str] = "Aggregate"
    selectivity: ClassVar[str] = "N:1"
    model_kind: ClassVar[str]
    #: Requirement on targets that are not in lists.
    target_type: ClassVar[Requirement] = "any"

    inputs: Names = ()
    target: str = "target"
    size: Count | None = 300
    dataset: str = "CITY"
    start_field: str = "event_time"
    end_field: str = "event_time"
    store: str | None = None

    def validate(self) -> None:
        name = self.name()
        if not self.inputs or len(set(self.inputs)) < len(self.inputs):
            raise ConfigError(f"{name} needs inputs, at least one field and none twice; got {self.inputs!r}")
        if self.target in self.inputs:
            raise ConfigError(f"{name}: target = {self.target!r} is among the inputs")
        taken = sorted(set(RESULTS.names) & set(self.by))
        if taken:
            raise ConfigError(f"{name} writes the field {taken[0]!r}; the key cannot have that name")
        try:
            ModelName.parse(self._model_name(0, 0, keyed=False))
        except ModelError:
            raise ConfigError(
                f"{name}: dataset = {self.dataset!r} begins model names: use only letters, digits, '_', '.' and '~'"
            ) from None
        if self.store is not None:
            check_store(self.store)

    @abstractmethod
    def fit(self, inputs: npt.NDArray[np.float64], targets: pa.Array, **facts: Any) -> Model:
        """Train the model of a set whose targets are usable; raise :class:`ModelError` if that is impossible."""

    @abstractmethod
    def usable_targets(self, targets: pa.Array) -> npt.NDArray[np.bool_]:
        """Return which targets can be used for training."""

    # -- schema ------------------------------------------------------------------------------------

    def requires(self) -> Mapping[str, Requirement]:
        number: Requirement = "any" if self.size is None else "number"
        return {
            **super().requires(),
            self.start_field: "any",
            self.end_field: "any",
            **dict.fromkeys(self.inputs, number),
            self.target: "any" if self.size is None else self.target_type,
        }

    @cached_property
    def float64_fields(self) -> tuple[str, ...]:
        # also in lists, whose requirement is another one
        return (*self.inputs, *((self.target,) if self.target_type == "number" else ()))

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        for name in (self.start_field, self.end_field):
            dtype = schema.field(name).type
            if not (pa.types.is_timestamp(dtype) or pa.types.is_integer(dtype) or pa.types.is_null(dtype)):
                raise ConfigError(f"{self.name()} needs times or milliseconds in the field {name!r}, got {dtype}")
        for name in (*self.inputs, self.target):
            dtype = schema.field(name).type
            number = name in self.inputs or self.target_type == "number"
            if self.size is None and not _is_list_of(dtype, number):
                what = "lists of numbers" if number else "lists of labels"
                raise ConfigError(f"{self.name()} needs {what} in the field {name!r}, as size is None; got {dtype}")
            if self.size is not None and pa.types.is_nested(dtype):
                raise ConfigError(
                    f"{self.name()} needs a value in the field {name!r}, got {dtype}; size=None takes lists"
                )

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return pa.schema([*(schema.field(name) for name in self._carried_fields(schema)), *RESULTS])

    def _carried_fields(self, schema: pa.Schema) -> list[str]:
        return list(dict.fromkeys([*carried_fields(schema.names), *self.by]))

    def writes(self) -> frozenset[str] | None:
        return frozenset(RESULTS.names)

    # -- running -----------------------------------------------------------------------------------

    def state_fields(self) -> Mapping[str, StateField]:
        held = {} if self.size is None else {"held": StateField("rows", initial=None)}
        return {**held, "newest": StateField("int64", initial=NEVER)}

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        missing = np.asarray(batch.column(self.start_field).is_null()) | np.asarray(
            batch.column(self.end_field).is_null()
        )
        if self.size is None:
            lengths = [pc.list_value_length(_lists(batch, name)) for name in (*self.inputs, self.target)]
            counts = input_matrix(pa.RecordBatch.from_arrays(lengths, names=list(map(str, range(len(lengths))))))
            missing |= np.isnan(counts).any(axis=1)
            bad = ~missing & (counts != counts[:, :1]).any(axis=1)
            errors.reject(batch, bad, "uneven", "the lists of inputs and targets differ in length")
        else:
            x, targets = input_matrix(batch, self.inputs), batch.column(self.target)
            infinite = _infinite(targets)
            missing |= np.isnan(x).any(axis=1) | ~(self.usable_targets(targets) | infinite)
            bad = ~missing & (infinite_rows(x) | infinite)
            errors.reject(batch, bad, "not_finite", "an input or the target is infinite")
        errors.reject(batch, missing, "missing_value", "an input, the target or a time is missing")
        bad |= missing
        return batch.filter(pa.array(~bad)) if bad.any() else batch

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        rows: list[int] = []
        results: list[dict[str, Any]] = []
        failed: dict[int, tuple[str, str]] = {}
        for one in self._lists(batch, slots) if self.size is None else self._record_sets(batch, slots, state["held"]):
            # names of one key never collide, however close the ends of its sets are
            number = max(one.end_ms, int(state["newest"][one.slot]) + 1)
            try:
                model = self.fit(one.inputs, one.targets, start_ms=one.start_ms, end_ms=one.end_ms)
            except ModelError as error:
                failed[one.row] = ("untrainable", f"the {len(one.targets)} rows of this set: {error}")
                continue
            name = self._model_name(number, self._key(batch, one.row), keyed=bool(self.by))
            try:
                if self.store is not None:
                    ModelStore.open(self.store).write(name, model)
            except ModelError as error:
                failed[one.row] = ("name_taken", str(error))
                continue
            state["newest"][one.slot] = number
            rows.append(one.row)
            results.append(_result(name, model))
        for reason in ("untrainable", "name_taken"):
            some = {row: text for row, (why, text) in failed.items() if why == reason}
            errors.reject(batch, np.array(list(some), np.int64), reason, list(some.values()))
        models = pa.RecordBatch.from_pylist(results, schema=RESULTS)
        carried = batch.select(self._carried_fields(batch.schema)).take(pa.array(rows, pa.int64()))
        return pa.RecordBatch.from_arrays([*carried.columns, *models.columns], schema=self.output_schema(batch.schema))

    def _record_sets(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], held: list[pa.RecordBatch | None]
    ) -> Iterator[_TrainingSet]:
        """Yield every ``size`` records of a key, in order of their last records."""
        assert self.size is not None
        names = list(dict.fromkeys((*self.inputs, self.target, self.start_field, self.end_field)))
        pool, owners, rows, _, last = collect_blocks(batch.select(names), slots, held, self.size)
        before = pool.num_rows - batch.num_rows
        for place in np.argsort(last[:: self.size]) * self.size:
            block = pool.take(pa.array(rows[place : place + self.size]))
            yield _TrainingSet(
                int(last[place]) - before,
                int(owners[place]),
                input_matrix(block, self.inputs),
                block.column(self.target),
                int(_milliseconds(block.column(self.start_field)).min()),
                int(_milliseconds(block.column(self.end_field)).max()),
            )

    def _lists(self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64]) -> Iterator[_TrainingSet]:
        """Yield a set per record, whose fields hold lists, without rows that have a missing or infinite value."""
        starts, ends = (_milliseconds(batch.column(name)) for name in (self.start_field, self.end_field))
        names = [*self.inputs, self.target]
        for row in range(batch.num_rows):
            table = pa.RecordBatch.from_arrays([_lists(batch, n).slice(row, 1).flatten() for n in names], names)
            x, targets = input_matrix(table, self.inputs), table.column(self.target)
            good = np.isfinite(x).all(axis=1) & self.usable_targets(targets)
            yield _TrainingSet(
                row, int(slots[row]), x[good], targets.filter(pa.array(good)), int(starts[row]), int(ends[row])
            )

    def _key(self, batch: pa.RecordBatch, row: int) -> int:
        if not self.by:
            return 0
        h1, _ = hash_columns([batch.column(name).slice(row, 1) for name in self.by], 1)
        return int(h1[0])

    def _model_name(self, number: int, key: int, *, keyed: bool) -> str:
        dataset = f"{self.dataset}~{key:016x}" if keyed else self.dataset
        return str(ModelName(number, self.model_kind, dataset))


def _result(name: str, model: Model) -> dict[str, Any]:
    return {
        "model": name,
        "kind": model.kind,
        "start_ms": model.start_ms,
        "end_ms": model.end_ms,
        "rows": model.rows,
        "metrics": json.dumps(model.metrics),
        "content": model.to_bytes(),
    }


def _lists(batch: pa.RecordBatch, name: str) -> pa.Array:
    column = batch.column(name)
    return column.cast(pa.list_(pa.float64())) if pa.types.is_null(column.type) else column


def _is_list_of(dtype: pa.DataType, numbers: bool) -> bool:
    if pa.types.is_null(dtype):  # an all-null column has no known type
        return True
    if not (pa.types.is_list(dtype) or pa.types.is_large_list(dtype)):
        return False
    item = dtype.value_type
    if pa.types.is_nested(item):
        return False
    return not numbers or bool(pa.types.is_integer(item) or pa.types.is_floating(item) or pa.types.is_null(item))


def _infinite(column: pa.Array) -> npt.NDArray[np.bool_]:
    if not pa.types.is_floating(column.type):
        return np.zeros(len(column), np.bool_)
    return np.asarray(pc.is_inf(column).fill_null(False))


def _milliseconds(column: pa.Array) -> npt.NDArray[np.int64]:
    numbers = int_column(column)
    if not pa.types.is_timestamp(column.type):
        return numbers
    if column.type.unit == "s":
        return numbers * 1000
    return numbers // {"ms": 1, "us": 1000, "ns": 1_000_000}[column.type.unit]

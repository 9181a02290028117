"""Base class of the predicting tasks: the model in use, and its replacement while the stream runs."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, ModelError
from riot_ops.core.operator import StatelessOperator
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.kernels.arrays.arrow import float_column, readonly
from riot_ops.kernels.jit import kernel
from riot_ops.models.any_model import model_from_bytes
from riot_ops.models.model import Model
from riot_ops.models.store import ModelName, check_store, file_model, stored_model
from riot_ops.task import KeyedTask, Requirement, State, StateField, with_field

if TYPE_CHECKING:
    from riot_ops.runtime.session import Session

__all__ = ["PredictionTask", "infinite_rows", "input_matrix"]

#: Versions of rows without a prediction: observations before any model, and updates.
NO_MODEL, UPDATE = -1, -2


@kernel
def assign_versions(slots: Any, updates: Any, current: Any, versions: Any) -> None:
    """Assign a model version to each row; updates[i] >= 0: a new version, -1: an observation, -2: a refused update."""
    for i in range(slots.size):
        if updates[i] >= 0:
            current[slots[i]] = updates[i]
        versions[i] = current[slots[i]] if updates[i] == -1 else -2


@dataclass(frozen=True, kw_only=True)
class PredictionTask(KeyedTask):
    """A task that applies a stored model to each record, and replaces the model when an update arrives.

    Parameters
    ----------
    inputs : tuple of str
        Numeric fields that the model reads; a model with other inputs is refused.
    model : str or None, default None
        Initial model: its name in ``store`` (without a store the path of its file), or its JSON form. None: there is no
        model until the first update. A file is read once per run or session: a replacement counts from the next one
        on. Spark workers read it whenever they restart the task, possibly in each micro-batch: there a file must not
        be replaced while a query runs.
    store : str or None, default None
        Folder or blob container of models, see :meth:`ModelStore.open`.
    updates : str or None, default None
        Text field that marks a record as an update: it holds the name of a model in the store, and is null in
        observations. From the update on, in stream order, its key uses that model. A name of another kind of model
        (``CITY-MLR-…`` for a classification) is ignored. None: all records are observations.
    output : str
        Field for the result.
    model_field : str or None, default None
        Field for the name of the model used (null for an inline JSON model); None: no such field.
    by, ttl
        Key and time to live, see :class:`KeyedTask`; each key has its own model (by default one for the stream).
        Without updates they make no difference.

    Errors
    ------
    In the errors stream: ``bad_model``, an update whose model is missing, damaged, of another kind or with other inputs
    (the previous model stays in use); ``no_model``, an observation before any model; ``not_finite``, an observation
    with an infinite input. An initial model that is missing or unsuitable raises :class:`ModelError` at the first
    batch, since its file must exist only where the task runs; so does a model in use that is missing after a restart.
    """

    category: ClassVar[str] = "Predictive"
    selectivity: ClassVar[str] = "1:0/1"
    model_types: ClassVar[tuple[type[Model], ...]]

    inputs: Names = ()
    output: str = "prediction"
    model: str | None = None
    store: str | None = None
    updates: str | None = None
    model_field: str | None = None

    def validate(self) -> None:
        name = self.name()
        if not self.inputs or len(set(self.inputs)) < len(self.inputs):
            raise ConfigError(f"{name} needs inputs, at least one field and none twice; got {self.inputs!r}")
        if self.model is None and self.updates is None:
            raise ConfigError(f"{name} needs a model, or updates and a store to load models from")
        if self.updates is not None and self.store is None:
            raise ConfigError(f"{name}: updates = {self.updates!r} needs a store that holds the models")
        names = [f.name for f in self._added_fields()]
        taken = sorted({*names} & {*self.by, *self.inputs, self.updates})
        if taken:
            raise ConfigError(f"{name} writes the field {taken[0]!r}, which it also reads; choose another output")
        if self.model_field in names[:-1]:
            raise ConfigError(f"{name}: model_field = {self.model_field!r} is also the name of a result")
        if self.store is not None:
            check_store(self.store)
        if _is_inline(self.model):
            self.load_initial_model()

    # -- schema ------------------------------------------------------------------------------------

    @abstractmethod
    def result_fields(self) -> list[pa.Field]:
        """Declare the fields that a prediction adds."""

    @abstractmethod
    def results(self, model: Any, x: npt.NDArray[np.float64]) -> list[pa.Array]:
        """Compute the columns of those fields for rows of inputs."""

    def _added_fields(self) -> list[pa.Field]:
        return [*self.result_fields(), *([pa.field(self.model_field, pa.string())] if self.model_field else [])]

    def requires(self) -> Mapping[str, Requirement]:
        texts: dict[str, Requirement] = {self.updates: "text"} if self.updates else {}
        return {**super().requires(), **dict.fromkeys(self.inputs, "number"), **texts}

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return functools.reduce(with_field, self._added_fields(), schema)

    def writes(self) -> frozenset[str] | None:
        return frozenset(f.name for f in self._added_fields())

    # -- models ------------------------------------------------------------------------------------

    def state_fields(self) -> Mapping[str, StateField]:
        # only the name: it identifies the same model after a restart and in a replay
        return {"model": StateField("json", initial=None)}

    def load_initial_model(self) -> Model | None:
        """Load the initial model; None if there is none."""
        if self.model is None:
            return None
        if _is_inline(self.model):
            return self._checked(_inline_model(self.model), "the inline model")
        found = file_model(self.model) if self.store is None else stored_model(self.store, self.model)
        return self._checked(found, self.model)

    @functools.cached_property
    def _session_model(self) -> Model | None:
        """Initial model, read once per session: each session has its own copy of the task."""
        return self.load_initial_model()

    def session(self, *, ordered: bool = True) -> Session:
        from riot_ops.runtime.session import Session

        return Session(self.replace(), ordered=ordered)

    def _load(self, name: str) -> Model:
        assert self.store is not None
        return self._checked(stored_model(self.store, name), name)

    def _checked(self, model: Model, name: str) -> Model:
        if not isinstance(model, self.model_types):
            needed = " or ".join(one.kind for one in self.model_types)
            raise ModelError(f"{name} is of kind {model.kind}, {self.name()} needs {needed}")
        if set(model.inputs) != set(self.inputs):
            raise ModelError(f"{name} reads {', '.join(model.inputs)}; the inputs here are {', '.join(self.inputs)}")
        self.check_model(model, name)
        return model

    def check_model(self, model: Any, name: str) -> None:
        """Raise :class:`ModelError` unless the model suits the task."""

    # -- running -----------------------------------------------------------------------------------

    def stateless_equivalent(self) -> StatelessOperator | None:
        return None if self.updates is not None else StatelessPrediction(task=self)

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        infinite = infinite_rows(input_matrix(batch, self.inputs))
        if self.updates is not None:
            infinite &= np.asarray(batch.column(self.updates).is_null())
        if not infinite.any():
            return batch
        errors.reject(batch, infinite, "not_finite", f"one of {', '.join(self.inputs)} is infinite")
        return batch.filter(pa.array(~infinite))

    def update(
        self, batch: pa.RecordBatch, slots: npt.NDArray[np.int64], state: State, errors: RejectedRecords
    ) -> pa.RecordBatch:
        touched, local = (slots[:1], np.zeros_like(slots)) if _constant(slots) else _unique_inverse(slots)
        names: list[str | None] = []
        current = np.array([_index_of(names, state["model"][s]) for s in touched], np.int64)
        models = [self._session_model if name is None else self._load(name) for name in names]
        updates = self._updates(batch, names, models, errors)
        current[[models[c] is None for c in current]] = NO_MODEL
        before = current.copy()
        versions = np.empty(batch.num_rows, np.int64)
        assign_versions(readonly(local), readonly(updates), current, versions)
        for place in np.flatnonzero(current != before):
            state["model"][touched[place]] = names[current[place]]
        errors.reject(batch, versions == NO_MODEL, "no_model", "there is no model yet: no update has arrived")
        return self._predict_versions(batch, names, models, versions)

    def predict_batch(self, batch: pa.RecordBatch, model: Model | None, errors: RejectedRecords) -> pa.RecordBatch:
        """Add the predictions of a model to the records."""
        batch = self.validate_rows(batch, errors)
        return self._predict_versions(batch, [None], [model], np.zeros(batch.num_rows, np.int64))

    def _updates(
        self, batch: pa.RecordBatch, names: list[str | None], models: list[Model | None], errors: RejectedRecords
    ) -> npt.NDArray[np.int64]:
        """Return the version in each row: an index into ``models``, -1 for an observation, -2 if refused."""
        found = np.full(batch.num_rows, -1, np.int64)
        if self.updates is None or batch.column(self.updates).null_count == batch.num_rows:
            return found
        column = batch.column(self.updates)
        refused: dict[int, str] = {}
        for row in np.flatnonzero(np.asarray(column.is_valid())):
            text = column[int(row)].as_py()
            name = text.decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text
            if self._is_for_other_task(name):
                found[row] = UPDATE
                continue
            try:
                model = self._load(name)
            except ModelError as error:
                found[row] = UPDATE
                refused[int(row)] = str(error)
                continue
            found[row] = _index_of(names, name)
            if found[row] == len(models):
                models.append(model)
        errors.reject(batch, np.array(list(refused), np.int64), "bad_model", list(refused.values()))
        return found

    def _is_for_other_task(self, name: str) -> bool:
        """Return whether a name belongs to a model of another kind of task."""
        try:
            return ModelName.parse(name).kind not in {one.kind for one in self.model_types}
        except ModelError:
            return False

    def _predict_versions(
        self,
        batch: pa.RecordBatch,
        names: list[str | None],
        models: list[Model | None],
        versions: npt.NDArray[np.int64],
    ) -> pa.RecordBatch:
        if (versions < 0).any():
            batch = batch.filter(pa.array(versions >= 0))
            versions = versions[versions >= 0]
        parts, rows = [], []
        for version in np.unique(versions):
            model = models[version]
            assert model is not None
            rows.append(np.flatnonzero(versions == version))
            part = batch if rows[-1].size == batch.num_rows else batch.take(pa.array(rows[-1]))
            parts.append(self.results(model, input_matrix(part, model.inputs)))
        fields = self.result_fields()
        columns: list[pa.Array] = [pa.array([], f.type) for f in fields] if not parts else parts[0]
        if len(parts) > 1:
            original_order = pa.array(np.argsort(np.concatenate(rows)))
            columns = [pa.concat_arrays(part).take(original_order) for part in zip(*parts, strict=True)]
        if self.model_field is not None:
            initial = None if _is_inline(self.model) else self.model
            known = pa.array([initial if name is None else name for name in names], pa.string())
            columns.append(known.take(pa.array(versions)))
        for field, column in zip(self._added_fields(), columns, strict=True):
            place = batch.schema.get_field_index(field.name)
            batch = batch.append_column(field, column) if place < 0 else batch.set_column(place, field, column)
        return batch


@dataclass(frozen=True, kw_only=True)
class StatelessPrediction(StatelessOperator):
    """Stateless form of a prediction task whose model is never replaced.

    Parameters
    ----------
    task : PredictionTask
        Task with an initial model and without updates.
    """

    task: Any

    def requires(self) -> Mapping[str, Requirement]:
        return dict(self.task.requires())

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        output: pa.Schema = self.task.output_schema(schema)
        return output

    def writes(self) -> frozenset[str] | None:
        written: frozenset[str] | None = self.task.writes()
        return written

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        predicted: pa.RecordBatch = self.task.predict_batch(batch, self._model, errors)
        return predicted

    @functools.cached_property
    def _model(self) -> Any:
        """Model, read once per run, since its file may be replaced later: each run has its own copy of the operator."""
        return self.task.load_initial_model()


def input_matrix(batch: pa.RecordBatch, names: Iterable[str] | None = None) -> npt.NDArray[np.float64]:
    """Stack fields (by default all) as the columns of a matrix, NaN where null."""
    columns = [float_column(batch.column(name))[0] for name in (batch.schema.names if names is None else names)]
    return np.stack(columns, axis=1)


def infinite_rows(x: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Return which rows of a matrix have an infinite value."""
    return np.asarray(np.isinf(x).any(axis=1))


def _constant(slots: npt.NDArray[np.int64]) -> bool:
    return bool(slots.size and (slots == slots[0]).all())


def _unique_inverse(slots: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return np.unique(slots, return_inverse=True)


def _index_of(names: list[str | None], name: str | None) -> int:
    """Return the index of a name in a list, after appending it if it is new."""
    if name not in names:
        names.append(name)
    return names.index(name)


def _is_inline(model: str | None) -> bool:
    return model is not None and model.lstrip().startswith("{")


@functools.lru_cache(maxsize=64)
def _inline_model(text: str | None) -> Model:
    return model_from_bytes(text or "")

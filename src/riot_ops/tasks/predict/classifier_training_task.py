"""Base class of the tasks that train classifiers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.errors import ConfigError, ModelError
from riot_ops.core.parameters import Names
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.schema import TIMESTAMP
from riot_ops.models.model import Model
from riot_ops.tasks.predict.training_task import TrainingTask

__all__ = ["ClassifierTrainingTask", "check_classes", "training_cases_batch"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ClassifierTrainingTask(TrainingTask):
    """A task that trains a classifier on each set of records."""

    classes: Names = ()
    seed: int = 0

    #: Function that trains the model; takes rows, labels, inputs, target and options by name.
    trainer: ClassVar[Callable[..., Model]]

    def validate(self) -> None:
        super().validate()
        check_classes(self.classes)
        if not 0 <= self.seed < 2**32:
            raise ConfigError(f"seed must be 0 to 2^32 - 1, got {self.seed}")

    @abstractmethod
    def trainer_options(self) -> dict[str, Any]:
        """Return the options of the trainer besides classes and seed."""

    def usable_targets(self, targets: pa.Array) -> npt.NDArray[np.bool_]:
        good = targets.is_valid()
        if pa.types.is_floating(targets.type):
            good = pc.and_(good, pc.is_finite(targets).fill_null(False))
        return np.asarray(good)

    def validate_rows(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        batch = super().validate_rows(batch, errors)
        if self.size is None or not self.classes:
            return batch
        labels = batch.column(self.target).cast(pa.string())
        known = pc.is_in(labels, pa.array(self.classes, pa.string()))
        strange = ~np.asarray(known)
        if not strange.any():
            return batch
        errors.reject(batch, strange, "unknown_class", f"the class is not one of {', '.join(self.classes)}")
        return batch.filter(known)

    def fit(self, inputs: Floats, targets: pa.Array, **facts: Any) -> Model:
        labels: list[str] = targets.cast(pa.string()).to_pylist()
        if self.classes and not set(labels) <= set(self.classes):
            raise ModelError(f"the set has classes other than {', '.join(self.classes)}")
        options = {"classes": self.classes, "seed": self.seed, **self.trainer_options()}
        return type(self).trainer(inputs, labels, self.inputs, self.target, **options, **facts)


def check_classes(classes: Sequence[str]) -> None:
    """Raise :class:`ConfigError` if a class is named twice."""
    if len(set(classes)) < len(classes):
        raise ConfigError(f"classes must not name a class twice, got {classes!r}")


def training_cases_batch() -> pa.RecordBatch:
    """Build records for the example cases of training tasks: any twelve consecutive ones have two classes."""
    n = 24
    return pa.RecordBatch.from_pydict(
        {
            "seq": pa.array(range(n), pa.int64()),
            "event_time": pa.array([i * 7 % 11 for i in range(n)], TIMESTAMP),
            "key": ["a", "ü"] * (n // 2),
            "x": [(-1) ** i * 1e9 / (i + 1) ** 3 for i in range(n)],
            "y": [i * 5 % 13 / 4 for i in range(n)],
            "target": ["low", "low", "ü"] * (n // 3),
        }
    )

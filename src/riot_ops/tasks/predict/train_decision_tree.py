"""Training of decision trees."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from riot_ops.core.parameters import Length, NonNegative
from riot_ops.models.fit import fit_tree
from riot_ops.models.tree import TreeModel
from riot_ops.task import Case, register
from riot_ops.tasks.predict.classifier_training_task import ClassifierTrainingTask, training_cases_batch
from riot_ops.tasks.predict.train_linear_regression import list_cases_batch

__all__ = ["TrainDecisionTree"]


@register
@dataclass(frozen=True, kw_only=True)
class TrainDecisionTree(ClassifierTrainingTask):
    """Train a classification tree on every ``size`` records, or on each record that holds a whole set.

    A node is split where ``H(node) - Σ n_child / n H(child)`` is largest, with H the entropy (or the Gini impurity) of
    the classes; scikit-learn grows the tree.

    Parameters
    ----------
    inputs : tuple of str
        Numeric fields.
    target : str, default "target"
        Field with the class: text, or numbers taken as their text.
    classes : tuple of str, default ()
        Labels in the order of their indexes; a record of another class is rejected. (): the classes that
        occur in a set, sorted.
    criterion : "entropy" or "gini", default "entropy"
        The H above.
    max_depth : int, 1 to 1,048,576, or None, default None
        Maximum depth of a leaf; None: no limit.
    min_samples_leaf : int, 1 to 1,048,576, default 2
        Minimum number of records in a leaf.
    ccp_alpha : float >= 0, default 0
        Cost of a leaf in minimal cost-complexity pruning; 0: no pruning.
    seed : int >= 0, default 0
        Seed that decides between equally good splits.
    size : int >= 1 or None, default 300
        Records of a key per model, one set after the other. None: each record is a set whose fields
        are lists of equal length.
    start_field, end_field : str, default "event_time"
        Fields with the times (or integer milliseconds since the epoch) that the data span, from the
        earliest start to the latest end in a set.
    dataset : str, default "CITY"
        Prefix of the models' names ``CITY-DTC-<end ms>.model``; with a key, the key's hash follows it.
        The end in a name is at least 1 ms after the end of the key's previous model.
    store : str or None, default None
        Folder or blob container to write the models to, see :meth:`ModelStore.open`; None: no store.
        Repeating the training writes the same model.
    by, ttl
        Key (each key has its own models) and time to live, see :class:`KeyedTask`.
    value, output
        Not used: ``inputs`` and ``target`` name the input, and the names of the results are fixed.

    Shapes and rates
    ----------------
    float64[n, k] -> model, N:1 (1:1 with ``size=None``): the last record of a set emits a record with its ``seq``,
    ``ordinal``, ``event_time`` and key, and ``model`` (the name), ``kind``, ``start_ms``, ``end_ms``, ``rows``,
    ``metrics`` (JSON: ``accuracy`` on the training data, ``leaves``, ``depth``) and ``content`` (the model's JSON).
    O(k n log² n) time; the state of a key is at most its last ``size - 1`` records.

    Missing values
    --------------
    A record without a usable input, target or time is rejected. In a list, rows with a null, NaN or
    infinite value are skipped.

    Errors
    ------
    In the errors stream: ``missing_value``, ``not_finite``, ``unknown_class``; ``uneven``, lists that differ in length;
    ``untrainable``, the last record of a set on which no model can be trained (fewer than two classes, in a list a
    class that is not in ``classes``, an input beyond single precision), which drops the set; ``name_taken``, where the
    store has another model of the same name. Without scikit-learn the first set raises :class:`MissingExtraError`.

    References
    ----------
    .. [1] L. Breiman et al., *Classification and Regression Trees*, 1984.
    .. [2] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task DTT.

    Examples
    --------
    >>> dtt = TrainDecisionTree(inputs=("x",), target="level", size=4).session()
    >>> days = ((1.0, "low"), (2.0, "low"), (8.0, "high"), (9.0, "high"))
    >>> rows = dtt.push_many({"x": x, "level": level, "event_time": 7000} for x, level in days)
    >>> rows[0]["model"], rows[0]["rows"], rows[0]["metrics"]
    ('CITY-DTC-7.model', 4, '{"accuracy": 1.0, "leaves": 2.0, "depth": 1.0}')
    >>> TreeModel.from_bytes(rows[0]["content"]).threshold[0]
    5.0
    """

    code: ClassVar[str] = "DTT"
    model_kind: ClassVar[str] = TreeModel.kind

    criterion: Literal["entropy", "gini"] = "entropy"
    max_depth: Length | None = None
    min_samples_leaf: Length = 2
    ccp_alpha: NonNegative = 0.0

    trainer = fit_tree

    def trainer_options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("criterion", "max_depth", "min_samples_leaf", "ccp_alpha")}

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = training_cases_batch()
        yield Case(cls(inputs=("x", "y"), size=12, min_samples_leaf=1), batch)
        options: dict[str, Any] = {"classes": ("ü", "low", "high"), "criterion": "gini", "max_depth": 2}
        yield Case(cls(inputs=("x",), size=12, by=("key",), dataset="TAXI", **options), batch, "by key")
        yield Case(
            cls(inputs=("x", "y"), size=None, start_field="from", end_field="to"), list_cases_batch(labels=True), "sets"
        )

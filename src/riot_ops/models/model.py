"""The base class of models: immutable data with a JSON form that any program can read and none executes."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar, Literal, Self

import msgspec
import numpy as np
import numpy.typing as npt

from riot_ops.core.display import html_display, html_table, wrapped
from riot_ops.core.errors import ModelError
from riot_ops.kernels.arrays.arrow import readonly

__all__ = ["MAX_BYTES", "MAX_NAMES", "Model", "check_finite", "decode", "library_version"]

FORMAT: Literal["riot_ops.model/1"] = "riot_ops.model/1"
#: Maximum size of the JSON form.
MAX_BYTES = 64 * 2**20
#: Maximum number of inputs, and of classes.
MAX_NAMES = 10_000
#: Inputs that the text of a model, and its display in a notebook, name.
MAX_SHOWN, HTML_SHOWN = 4, 30


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", dict=True):
    """Fields that all models have.

    Parameters
    ----------
    inputs : tuple of str
        Names of the inputs, in the order of the parameters.
    target : str
        Name of the predicted value.
    start_ms, end_ms : int, default 0
        Span of the training data (ms since the epoch).
    rows : int, default 0
        Number of training rows.
    metrics : mapping of str to float, default {}
        Metrics of the model on its training data.
    made_by : str, default ""
        Library and version that trained it.
    format : str
        Version of the JSON form.

    Examples
    --------
    >>> from riot_ops import models
    >>> model = models.LinearModel(inputs=("t",), target="load", coefficients=(2.0,), intercept=1.0, rows=120)
    >>> model.inputs, model.target, model.rows
    (('t',), 'load', 120)
    """

    kind: ClassVar[str] = ""

    inputs: tuple[str, ...]
    target: str
    start_ms: int = 0
    end_ms: int = 0
    rows: int = 0
    metrics: dict[str, float] = {}
    made_by: str = ""
    format: Literal["riot_ops.model/1"] = FORMAT

    def __post_init__(self) -> None:
        if not 1 <= len(self.inputs) <= MAX_NAMES or len(set(self.inputs)) < len(self.inputs):
            raise ModelError(f"inputs must be 1 to {MAX_NAMES} different names, got {len(self.inputs)}")
        if self.target in self.inputs:
            raise ModelError(f"the target {self.target!r} is among the inputs")
        if self.rows < 0 or self.start_ms > self.end_ms:
            raise ModelError(
                f"rows = {self.rows}, start_ms = {self.start_ms}, end_ms = {self.end_ms} are not a training span"
            )
        check_finite("metrics", self.metrics.values())

    def __repr__(self) -> str:
        return "\n".join(wrapped(f"{type(self).__name__} {self._text()}", "  "))

    def _text(self) -> str:
        inputs = ", ".join(self.inputs[:MAX_SHOWN]) + (", …" if len(self.inputs) > MAX_SHOWN else "")
        metrics = "".join(f"; {name} {value:.4g}" for name, value in self.metrics.items())
        return f"of {self.target!r} from {len(self.inputs):,} inputs ({inputs}); {self.rows:,} training rows{metrics}"

    def _repr_html_(self) -> str:
        span = [_time_text(ms) for ms in (self.start_ms, self.end_ms) if ms]
        inputs = ", ".join(self.inputs[:HTML_SHOWN]) + (", …" if len(self.inputs) > HTML_SHOWN else "")
        rows = [
            ["target", self.target],
            ["inputs", f"{len(self.inputs):,}: {inputs}"],
            ["training rows", f"{self.rows:,}"],
            *([["training data", " to ".join(span)]] if span else []),
            *([["trained by", self.made_by]] if self.made_by else []),
            *([name, f"{value:.6g}"] for name, value in self.metrics.items()),
        ]
        return html_display(type(self).__name__, html_table(rows))

    def to_bytes(self) -> bytes:
        """Encode the JSON form; equal models have equal bytes."""
        return msgspec.json.encode(self)

    def to_json(self) -> str:
        """Return the JSON form as text."""
        return self.to_bytes().decode()

    @classmethod
    def from_bytes(cls, data: bytes | str, where: str = "") -> Self:
        """Decode the data of :meth:`to_bytes`; raise :class:`ModelError` for anything else."""
        kind = decode(data, _Kind, where).kind
        if kind != cls.kind:
            raise ModelError(f"the model{where} is of kind {kind}, expected {cls.kind}")
        model: Self = decode(data, cls, where)
        return model

    def matrix(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Return the rows as a float64 matrix with a column per input."""
        rows = np.ascontiguousarray(x, np.float64)
        if rows.ndim != 2 or rows.shape[1] != len(self.inputs):
            raise ModelError(f"expected rows of {len(self.inputs)} inputs, got an array of shape {rows.shape}")
        return readonly(rows)


def _time_text(ms: int) -> str:
    try:
        return f"{datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms):%Y-%m-%d %H:%M}"
    except OverflowError:
        return f"{ms:,} ms"


class _Kind(msgspec.Struct):
    """The part of the JSON form that has the kind of the model."""

    kind: str


def decode(data: bytes | str, form: Any, where: str = "") -> Any:
    """Decode JSON of type ``form``; raise :class:`ModelError` for anything else. ``where`` names the model."""
    if len(data) > MAX_BYTES:
        raise ModelError(f"the model{where} has {len(data)} bytes, more than the allowed {MAX_BYTES}")
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"the model{where} is damaged or not a riot_ops model: {error}") from None


@cache
def library_version(name: str) -> str:
    """Name and version of a distribution.

    >>> library_version("numpy").startswith("numpy ")
    True
    """
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return name


def check_finite(what: str, numbers: Any) -> None:
    """Raise :class:`ModelError` unless all of the numbers are finite."""
    if not all(math.isfinite(v) for v in numbers):
        raise ModelError(f"{what} must be finite numbers, got {list(numbers)}")

"""Model stores: folders or blob containers of model files that never change."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from riot_ops.core.errors import ModelError, RecordError, excerpt
from riot_ops.models.any_model import AnyModel, model_from_bytes
from riot_ops.models.model import MAX_BYTES, Model

__all__ = ["ModelFiles", "ModelName", "ModelStore", "check_store", "file_model", "stored_model"]

_NAME = re.compile(r"(?P<dataset>\w[\w.~]*)-(?P<kind>[A-Z]+)-(?P<end>-?\d{1,19})\.model")


@dataclass(frozen=True, order=True)
class ModelName:
    """The parts of a file name ``CITY-MLR-<end ms>.model``; older models sort first.

    Examples
    --------
    >>> name = ModelName.parse("CITY-MLR-1422749800000.model")
    >>> name.dataset, name.kind, name.end_ms
    ('CITY', 'MLR', 1422749800000)
    >>> str(name)
    'CITY-MLR-1422749800000.model'
    """

    end_ms: int
    kind: str
    dataset: str

    @classmethod
    def parse(cls, text: str) -> ModelName:
        """Parse a name; raise :class:`ModelError` for anything else, such as a path."""
        found = _NAME.fullmatch(text)
        if found is None:
            raise ModelError(f"{excerpt(text)!r} is not the name of a model, such as CITY-MLR-1422749800000.model")
        return cls(int(found["end"]), found["kind"], found["dataset"])

    def __str__(self) -> str:
        return f"{self.dataset}-{self.kind}-{self.end_ms}.model"


class ModelFiles(Protocol):
    """The files of a model store, such as :class:`riot_ops.connectors.stores.blob.BlobStore`.

    A problem with one file raises :class:`RecordError`, a problem with the store :class:`ConnectorError`.

    Examples
    --------
    >>> from riot_ops.connectors.stores.factory import open_blobs
    >>> files = open_blobs("memory://models")
    >>> files.write("a.model", b"{}")
    >>> list(files.list()), files.read("a.model")
    (['a.model'], b'{}')
    """

    def list(self, prefix: str = "") -> Iterable[str]:
        """List the names that begin with a prefix."""

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        """Read a file; raise :class:`RecordError` if it is missing or too large."""

    def write(self, name: str, data: bytes, *, overwrite: bool = True) -> None:
        """Write a file atomically; without ``overwrite``, an existing file must have the same content."""


class ModelStore:
    """Models by name; the content of a name never changes.

    Parameters
    ----------
    files : ModelFiles
        The files of the store.

    Examples
    --------
    >>> import tempfile
    >>> from riot_ops.models import LinearModel
    >>> model = LinearModel(inputs=("x",), target="y", intercept=1.0, coefficients=(2.0,), end_ms=5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = ModelStore.open(folder)
    ...     store.save(model, "CITY"), store.newest("MLR"), store.load("CITY-MLR-5.model") == model
    ('CITY-MLR-5.model', 'CITY-MLR-5.model', True)
    """

    def __init__(self, files: ModelFiles) -> None:
        self.files = files

    @classmethod
    def open(cls, url: str | Path) -> ModelStore:
        """Open the store at a URL: a folder, ``azure-blob://container``, or any other that ``open_blobs`` supports.

        Azure takes its connection string from the environment variable
        ``AZURE_STORAGE_CONNECTION_STRING``.
        """
        from riot_ops.connectors.stores.factory import shared_blobs

        return cls(shared_blobs(str(url)))

    def names(self, kind: str | None = None, dataset: str | None = None) -> list[str]:
        """Return the names of the models, newest first; other files are ignored."""
        found = []
        for text in self.files.list():
            if _NAME.fullmatch(text):
                name = ModelName.parse(text)
                if kind in (None, name.kind) and dataset in (None, name.dataset):
                    found.append((name, text))
        return [text for _, text in sorted(found, reverse=True)]

    def newest(self, kind: str | None = None, dataset: str | None = None) -> str | None:
        """Return the name of the newest model, or None."""
        return next(iter(self.names(kind, dataset)), None)

    def load(self, name: str) -> AnyModel:
        """Load a model; raise :class:`ModelError` if it is missing, damaged, or of another kind than its name says."""
        parts = ModelName.parse(name)
        try:
            data = self.files.read(name, MAX_BYTES)
        except RecordError as error:
            raise ModelError(f"the model {name} cannot be read: {error}") from None
        model = model_from_bytes(data, f" {name}")
        if model.kind != parts.kind:
            raise ModelError(f"the model {name} is of kind {model.kind}")
        return model

    def save(self, model: Model, dataset: str) -> str:
        """Write a model; its name consists of the data set, its kind and the end of its training data."""
        name = str(ModelName(model.end_ms, model.kind, dataset))
        self.write(name, model)
        return name

    def write(self, name: str, model: Model) -> None:
        """Write a model; raise :class:`ModelError` if the name is invalid or has another content already."""
        ModelName.parse(name)
        try:
            self.files.write(name, model.to_bytes(), overwrite=False)
        except RecordError as error:
            raise ModelError(f"the model {name} is not written, as models are never overwritten: {error}") from None


def check_store(url: str) -> None:
    """Raise :class:`ConfigError` unless ``url`` is the URL of a store.

    Examples
    --------
    >>> check_store("models/city")
    >>> check_store("azure-blob://models")
    """
    from riot_ops.connectors.stores.factory import check_blob_url

    check_blob_url(url)


@functools.lru_cache(maxsize=64)
def stored_model(store: str, name: str) -> AnyModel:
    """Load a model of a store, once per process.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from riot_ops import models
    >>> model = models.LinearModel(inputs=("x",), target="y", coefficients=(2.0,), intercept=1.0)
    >>> with TemporaryDirectory() as folder:
    ...     name = models.ModelStore.open(folder).save(model, "CITY")
    ...     models.stored_model(folder, name).intercept
    1.0
    """
    return ModelStore.open(store).load(name)


def file_model(path: str) -> AnyModel:
    """Load the model in a file of any name, once per process and version of the file.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from riot_ops import models
    >>> model = models.LinearModel(inputs=("x",), target="y", coefficients=(2.0,), intercept=1.0)
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "linear.json")
    ...     _ = path.write_text(model.to_json())
    ...     models.file_model(str(path)).coefficients
    (2.0,)
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise ModelError(f"the model {path} cannot be read: {error.strerror}") from None
    return _file_model(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=16)
def _file_model(path: str, modified: int, size: int) -> AnyModel:
    if size > MAX_BYTES:
        raise ModelError(f"the model {path} has {size} bytes, more than the allowed {MAX_BYTES}")
    try:
        return model_from_bytes(Path(path).read_bytes(), f" {path}")
    except OSError as error:
        raise ModelError(f"the model {path} cannot be read: {error.strerror}") from None

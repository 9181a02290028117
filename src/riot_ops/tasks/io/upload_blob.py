"""Upload of values and files as blobs."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import numpy as np
import pyarrow as pa

from riot_ops.connectors.retry import map_parallel
from riot_ops.connectors.stores.folder import FolderBlobs
from riot_ops.connectors.template import Template, template
from riot_ops.core.errors import ConfigError, RecordError
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.task import Case, Requirement, register, replace_column, with_field
from riot_ops.tasks.io.store_task import BlobTask, Failures, reject

__all__ = ["UploadBlob"]


@register
@dataclass(frozen=True, kw_only=True)
class UploadBlob(BlobTask):
    """Upload a value of each record, or the file that it names, as a blob, and pass the record on.

    At least once, and effectively once in the store if the name is determined by the record: a record
    processed again after a crash writes the same blob again.

    Parameters
    ----------
    store, credential, retry, max_concurrency
        Address and clients, see :class:`BlobTask` and :class:`StoreTask`.
    blob : str, default "{name}"
        Template of the blob's name, see :class:`riot_ops.connectors.template.Template`.
    value : str, default "data"
        Text or binary field to upload.
    folder : str or None, default None
        If given, ``value`` is the path of a file in this folder, whose content is uploaded.
    gather : str or None, default None
        If given, the records of a batch are written into one blob, a line of JSON for each:
        ``{"blob": name, "data": text}``, with ``"base64"`` in place of ``"data"`` for bytes that are not UTF-8.
        ``gather`` is the template of its name, rendered for the first record of the batch; it must differ between
        batches, as ``"results/{seq}.jsonl"`` does. Much faster for small values. Effectively once if batches
        have the same limits when they are processed again, as on Spark.
    overwrite : bool, default True
        Whether to replace a blob of the same name. If False and the name has other content, that content
        stays and the record is rejected.
    output : str, default "blob"
        Text field for the name of the blob with the value.

    Shapes and rates
    ----------------
    text or binary[n] -> name[n], 1:1; one call of the store per record, or per batch with ``gather``.
    If several records of a batch have the same name, the last one is written (without ``overwrite``
    the first).

    Missing values
    --------------
    A null in the name or value: ``missing_key`` or ``missing_value``, see Errors.

    Errors
    ------
    ``missing_key`` (a null in the name); ``bad_name`` (a name that is not allowed); ``missing_value`` (a null
    value); ``not_found`` (no such file); ``exists`` (the name has other content); ``refused`` (by a
    database).

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task ABU.

    Examples
    --------
    >>> upload = UploadBlob(store="memory://doc", blob="charts/{sensor}.svg", value="svg").session()
    >>> upload.push({"sensor": "s1", "svg": "<svg/>"})
    [{'sensor': 's1', 'svg': '<svg/>', 'blob': 'charts/s1.svg'}]
    >>> from riot_ops.connectors.stores import open_blobs
    >>> open_blobs("memory://doc").read("charts/s1.svg")
    b'<svg/>'
    """

    code: ClassVar[str] = "ABU"
    pattern: ClassVar[str] = "Sink"
    templates: ClassVar[tuple[str, ...]] = ("blob",)

    blob: str = "{name}"
    value: str = "data"
    folder: str | None = None
    gather: str | None = None
    overwrite: bool = True
    output: str = "blob"

    def validate(self) -> None:
        super().validate()
        if self.folder == "":
            raise ConfigError(f"{self.name()}: folder must be a path, got ''")
        self._gather()

    def _gather(self) -> Template | None:
        try:
            return None if self.gather is None else template(self.gather)
        except ConfigError as error:
            raise ConfigError(f"{self.name()}: gather: {error}") from None

    def requires(self) -> Mapping[str, Requirement]:
        gather = self._gather()
        return {**super().requires(), **dict.fromkeys(gather.fields if gather else (), "any"), self.value: "text"}

    def writes(self) -> frozenset[str]:
        return frozenset({self.output})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        gather = self._gather()
        if gather is not None:
            gather.check(schema)
        return with_field(schema, pa.field(self.output, pa.string()))

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        failures: Failures = {}
        names: list[Any] = [name for (name,) in self.rendered(batch, self.templates, failures)]
        values = self._values(batch, failures)
        jobs: dict[str, list[int]] = {}
        for i, name in enumerate(names):
            if i not in failures:
                jobs.setdefault(name, []).append(i)
        if self.gather is None:
            self._write_each(jobs, values, failures)
        elif jobs:
            names = self._write_all(batch, jobs, values, failures)
        keep = reject(batch, failures, errors)
        out = batch.filter(pa.array(keep))
        return replace_column(out, self.output, pa.array([names[i] for i in np.flatnonzero(keep)], pa.string()))

    def _values(self, batch: pa.RecordBatch, failures: Failures) -> list[bytes]:
        """Return the content to upload for each record."""
        files = FolderBlobs(self.folder) if self.folder is not None else None
        values: list[bytes] = []
        for i, value in enumerate(batch.column(self.value).to_pylist()):
            data = value.encode() if isinstance(value, str) else value
            if data is None:
                failures.setdefault(i, RecordError(f"{self.value} is null", reason="missing_value"))
            elif files is not None and i not in failures:
                try:
                    data = files.read(_within(files.folder, data))
                except RecordError as error:
                    failures[i] = error
            values.append(data or b"")
        return values

    def _write_each(self, jobs: Mapping[str, list[int]], values: list[bytes], failures: Failures) -> None:
        blobs = self.blobs

        def write(name: str) -> Failures:
            rows = jobs[name]
            data = values[rows[-1 if self.overwrite else 0]]
            try:
                blobs.write(name, data, overwrite=self.overwrite)
            except RecordError as error:
                return dict.fromkeys(rows, error)
            other = RecordError(f"another record of the batch has the blob name {name!r}", reason="exists")
            return {} if self.overwrite else {i: other for i in rows if values[i] != data}

        for failed in map_parallel(write, list(jobs), self.max_concurrency):
            failures.update(failed)

    def _write_all(
        self, batch: pa.RecordBatch, jobs: Mapping[str, list[int]], values: list[bytes], failures: Failures
    ) -> list[str | None]:
        """Write the values of all records into one blob; returns its name for each record."""
        gather = self._gather()
        assert gather is not None
        order = sorted((i, name) for name, rows in jobs.items() for i in rows)
        (into,) = gather.render(batch.slice(order[0][0], 1))
        lines = msgspec.json.Encoder().encode_lines([_line(name, values[i]) for i, name in order])
        try:
            if into is None:
                raise RecordError(f"a field of {self.gather!r} is null", reason="missing_key")
            self.blobs.write(into, lines, overwrite=self.overwrite)
        except RecordError as error:
            failures.update(dict.fromkeys((i for i, _ in order), error))
        return [into] * batch.num_rows

    @classmethod
    def cases(cls) -> Iterable[Case]:
        batch = pa.RecordBatch.from_pydict(
            {
                "name": ["a", "models/ü", None, "../a", "a", "", "b"],
                "data": [b"\x00\xff", b"", b"x", b"x", b"y", b"x", None],
            }
        )
        yield Case(cls(store="memory://cases"), batch)
        texts = pa.RecordBatch.from_pydict({"n": pa.array([7, None, 8], pa.int64()), "text": ["ü", "x", None]})
        yield Case(cls(store="memory://cases", blob="{n}", value="text", overwrite=False, output="n2"), texts, "texts")


def _within(folder: Path, path: bytes) -> str:
    """Convert a path to a name relative to the folder."""
    text = path.decode("utf-8", "surrogateescape")
    return text.removeprefix(f"{folder}/") if text.startswith("/") else text


def _line(name: str, data: bytes) -> dict[str, str]:
    try:
        return {"blob": name, "data": data.decode()}
    except UnicodeDecodeError:
        return {"blob": name, "base64": base64.b64encode(data).decode()}

"""Download of blobs by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from riot_ops.connectors.retry import map_parallel
from riot_ops.connectors.stores.folder import FolderBlobs
from riot_ops.core.errors import RecordError
from riot_ops.core.parameters import Count
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.task import Case, register, replace_column, with_field
from riot_ops.tasks.io.store_task import BlobTask, Failures, reject, scratch

__all__ = ["DownloadBlob"]

#: Largest size of a binary Arrow column in bytes.
MAX_COLUMN_BYTES = (1 << 31) - 1


@register
@dataclass(frozen=True, kw_only=True)
class DownloadBlob(BlobTask):
    """Download the blob that each record names, such as a trained model.

    A name that occurs several times in a batch is downloaded once.

    Parameters
    ----------
    store, credential, retry, max_concurrency
        Address and clients, see :class:`BlobTask` and :class:`StoreTask`.
    blob : str, default "{name}"
        Template of the blob's name, see :class:`riot_ops.connectors.template.Template`.
    output : str, default "data"
        Binary field for the content.
    max_bytes : int, >= 1, default 67108864
        Largest blob that is downloaded, in bytes.

    Shapes and rates
    ----------------
    name[n] -> binary[n], 1:1; one call of the store per distinct name of a batch.

    Missing values
    --------------
    A null in the name: ``missing_key``, see Errors.

    Errors
    ------
    ``missing_key`` (a null in the name); ``bad_name`` (a name that is not allowed); ``not_found``;
    ``too_large`` (larger than ``max_bytes``, or more than 2 GiB together with the blobs before it in the
    batch).

    References
    ----------
    .. [1] A. Shukla, S. Chaturvedi, Y. Simmhan, *RIoTBench*, CCPE 2017, task ABD.

    Examples
    --------
    >>> from riot_ops.connectors.stores import open_blobs
    >>> open_blobs("memory://doc").write("CITY-MLR-5.model", b"...")
    >>> download = DownloadBlob(store="memory://doc", blob="{model}").session()
    >>> download.push({"model": "CITY-MLR-5.model"})
    [{'model': 'CITY-MLR-5.model', 'data': b'...'}]
    >>> download.push({"model": "CITY-MLR-6.model"}), download.errors[0]["reason"]
    ([], 'not_found')
    """

    code: ClassVar[str] = "ABD"
    templates: ClassVar[tuple[str, ...]] = ("blob",)

    blob: str = "{name}"
    output: str = "data"
    max_bytes: Count = 64 << 20

    def writes(self) -> frozenset[str]:
        return frozenset({self.output})

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        return with_field(schema, pa.field(self.output, pa.binary()))

    def apply(self, batch: pa.RecordBatch, errors: RejectedRecords) -> pa.RecordBatch:
        failures: Failures = {}
        names = [name for (name,) in self.rendered(batch, self.templates, failures)]
        wanted = list(dict.fromkeys(name for i, name in enumerate(names) if i not in failures))
        contents = self._contents(wanted)
        total = 0
        data: list[bytes | None] = []
        for i, name in enumerate(names):
            found = contents.get(name)
            if isinstance(found, bytes):
                total += len(found)
                if total > MAX_COLUMN_BYTES:
                    total -= len(found)
                    found = RecordError("the blobs of a batch exceed 2 GiB: use smaller batches", reason="too_large")
            if isinstance(found, RecordError):
                failures[i] = found
            data.append(found if isinstance(found, bytes) else None)
        keep = reject(batch, failures, errors)
        return replace_column(batch, self.output, pa.array(data, pa.binary())).filter(pa.array(keep))

    def _contents(self, names: list[str]) -> Mapping[str, bytes | RecordError]:
        blobs = self.blobs

        def read(name: str) -> bytes | RecordError:
            try:
                return blobs.read(name, self.max_bytes)
            except RecordError as error:
                return error

        return dict(zip(names, map_parallel(read, names, self.max_concurrency), strict=True))

    @classmethod
    def cases(cls) -> Iterable[Case]:
        store = FolderBlobs(scratch() / "download")
        for name, data in (("a", b"\x00\xff"), ("models/ü", b""), ("7", b"seven"), ("big", bytes(9))):
            store.write(name, data)
        batch = pa.RecordBatch.from_pydict({"name": ["a", "models/ü", None, "gone", "../a", "a", "", "big"]})
        yield Case(cls(store=str(store.folder), max_bytes=8), batch)
        numbers = pa.RecordBatch.from_pydict({"n": pa.array([7, None, 8], pa.int64()), "name": ["x", None, "x"]})
        yield Case(
            cls(store=f"file://{store.folder}", blob="{n}", output="name", max_concurrency=1), numbers, "numbers"
        )

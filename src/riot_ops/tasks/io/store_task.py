"""Bases of the tasks over stores: addresses, clients and failed records."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.connectors.stores.blob import BlobStore
from riot_ops.connectors.stores.factory import check_blob_url, check_table_url, shared_blobs, shared_table
from riot_ops.connectors.stores.table import TableStore, check_table, storable_value
from riot_ops.connectors.template import Template, render_keys, template
from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConfigError, RecordError
from riot_ops.core.parameters import Count, Duration
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.core.secret import Secret
from riot_ops.task import Requirement, StatelessTask

__all__ = ["BlobTask", "StoreTask", "TableTask", "plain_columns", "reject", "scratch"]

Failures = dict[int, RecordError]


@dataclass(frozen=True, kw_only=True)
class StoreTask(StatelessTask):
    """A task that reads or writes a store.

    Parameters
    ----------
    store : str
        Address of the store, without a password, see ``credential``.
    credential : Secret or None
        For Azure the connection string, None: the one in the environment variable
        ``AZURE_STORAGE_CONNECTION_STRING``; for a database the password.
    retry : timedelta >= 0 or text such as "10s", default 1 minute
        How long a call with a transient failure is retried. A call that still fails, or fails for
        another reason (key, missing container, full disk), stops the dataflow with a
        :class:`ConnectorError`; a restart continues from its checkpoint.
    """

    category: ClassVar[str] = "IO"
    reentrant: ClassVar[bool] = False
    #: Parameters that are templates, of names or of keys.
    templates: ClassVar[tuple[str, ...]] = ()
    #: Whether the templates are of keys.
    keys: ClassVar[bool] = False

    store: str
    credential: Secret | None = None
    retry: Duration = timedelta(minutes=1)

    def validate(self) -> None:
        duration_seconds("retry", self.retry, zero=True)
        for name in self.templates:
            self.template(name)

    def template(self, name: str) -> Template:
        """Compile the template in a parameter."""
        try:
            return template(getattr(self, name), self.keys)
        except ConfigError as error:
            raise ConfigError(f"{self.name()}: {name}: {error}") from None

    def requires(self) -> Mapping[str, Requirement]:
        return {field: "any" for name in self.templates for field in self.template(name).fields}

    def check_input(self, schema: pa.Schema) -> None:
        super().check_input(schema)
        for name in self.templates:
            self.template(name).check(schema)

    def rendered(self, batch: pa.RecordBatch, names: Sequence[str], failures: Failures) -> list[tuple[str, ...]]:
        """Render templates for each record; record a failure where a text is null."""
        return render_keys(batch, [(getattr(self, name), self.template(name)) for name in names], failures)


@dataclass(frozen=True, kw_only=True)
class BlobTask(StoreTask):
    """A task that reads or writes a blob store.

    Parameters
    ----------
    store : str
        A folder (path or ``file:///path``), ``azure-blob://container``, the address of a database such as
        ``sqlite:///file.db``, or ``memory://name`` (within the process, for tests).
    credential, retry
        See :class:`StoreTask`.
    max_concurrency : int, >= 1, default 8
        Number of concurrent transfers.
    """

    max_concurrency: Count = 8

    def validate(self) -> None:
        super().validate()
        check_blob_url(self.store, self.credential)

    @property
    def blobs(self) -> BlobStore:
        """The store, opened once per process."""
        return shared_blobs(self.store, self.credential, retry=self.retry)


@dataclass(frozen=True, kw_only=True)
class TableTask(StoreTask):
    """A task that reads or writes a table.

    Parameters
    ----------
    store : str
        ``azure-table://``, the address of a database such as ``sqlite:///file.db``, or ``memory`` (within
        the process, for tests).
    table : str
        Name of the table: 3 to 63 ASCII letters and digits. In a database it is created at the first use.
    credential, retry
        See :class:`StoreTask`.
    max_concurrency : int, >= 1, default 8
        Number of concurrent calls (Azure).
    partition, row : str
        Templates of the partition key and the row key, see :class:`riot_ops.connectors.template.Template`:
        ``{field}`` is replaced by the text of a field: integers with 20 digits, times in microseconds, or in
        milliseconds for ``{time:ms}``. ``|`` separates fields unambiguously.
    """

    keys: ClassVar[bool] = True

    table: str
    partition: str
    max_concurrency: Count = 8

    def validate(self) -> None:
        super().validate()
        check_table_url(self.store, self.credential)
        check_table(self.table)

    @property
    def rows(self) -> TableStore:
        """The table, opened once per process."""
        return shared_table(
            self.store, self.table, self.credential, retry=self.retry, max_concurrency=self.max_concurrency
        )


def reject(batch: pa.RecordBatch, failures: Failures, errors: RejectedRecords) -> npt.NDArray[np.bool_]:
    """Reject the failed records; return which remain."""
    keep = np.ones(batch.num_rows, np.bool_)
    reasons: dict[str, list[int]] = {}
    for i in sorted(failures):
        reasons.setdefault(failures[i].reason, []).append(i)
        keep[i] = False
    for reason, rows in reasons.items():
        errors.reject(batch, np.array(rows), reason, [str(failures[i]) for i in rows])
    return keep


def plain_columns(batch: pa.RecordBatch, names: Sequence[str]) -> list[dict[str, Any]]:
    """Convert fields of each record to the value types of stores."""
    columns = []
    for name in names:
        column = batch.column(name)
        if pa.types.is_timestamp(column.type):  # Python's datetime has no nanoseconds
            column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        columns.append([storable_value(value) for value in column.to_pylist()])
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


@functools.cache
def scratch() -> Path:
    """Create a folder for the stores of contract cases; it is removed at the end of the process."""
    folder = tempfile.mkdtemp(prefix="riot_ops-cases-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)

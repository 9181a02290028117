"""What the tasks over stores share: addresses, clients and records that fail."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.connectors.stores.blob import BlobStore
from riot_ops.connectors.stores.opening import check_blob_url, check_table_url, shared_blobs, shared_table
from riot_ops.connectors.stores.table import TableStore, check_table, plain
from riot_ops.connectors.template import Template, template
from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, RecordError
from riot_ops.core.parameters import Count, NonNegative
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
        Address of the store. It holds no password: that is the credential.
    credential : Secret or None
        For Azure the connection string, by default (None) that in the environment variable
        ``AZURE_STORAGE_CONNECTION_STRING``; for a database the password.
    retry_s : float, >= 0, default 60
        For how long a call that fails for a passing reason is tried again (s). What still fails then,
        or for another reason (key, missing container, full disk), stops the dataflow with a
        :class:`ConnectorError`; a restart goes on from its checkpoint.
    """

    category: ClassVar[str] = "IO"
    reentrant: ClassVar[bool] = False
    #: Parameters that are templates of names or keys.
    templates: ClassVar[tuple[str, ...]] = ()
    #: Whether they are templates of keys.
    keys: ClassVar[bool] = False

    store: str
    credential: Secret | None = None
    retry_s: NonNegative = 60.0

    def validate(self) -> None:
        for name in self.templates:
            self.template(name)

    def template(self, name: str) -> Template:
        """A parameter as a template."""
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
        """The texts of templates for each record; a record without one of them fails."""
        columns = [self.template(name).render(batch) for name in names]
        rows: list[tuple[str, ...]] = []
        for i, texts in enumerate(zip(*columns, strict=True)):
            if None in texts:
                missing = getattr(self, names[texts.index(None)])
                failures[i] = RecordError(f"a field of {missing!r} is null", reason="missing_key")
            rows.append(texts)
        return rows


@dataclass(frozen=True, kw_only=True)
class BlobTask(StoreTask):
    """A task over a blob store.

    Parameters
    ----------
    store : str
        A folder (path or ``file:///path``), ``azure-blob://container``, the address of a database such as
        ``sqlite:///file.db``, or ``memory://name`` (of one process, for tests).
    credential, retry_s
        See :class:`StoreTask`.
    parallel : int, >= 1, default 8
        Blobs on their way at once.
    """

    parallel: Count = 8

    def validate(self) -> None:
        super().validate()
        check_blob_url(self.store, self.credential)

    @property
    def blobs(self) -> BlobStore:
        """The store, opened once per process."""
        return shared_blobs(self.store, self.credential, retry_s=self.retry_s)


@dataclass(frozen=True, kw_only=True)
class TableTask(StoreTask):
    """A task over a table.

    Parameters
    ----------
    store : str
        ``azure-table://``, the address of a database such as ``sqlite:///file.db``, or ``memory`` (of one
        process, for tests).
    table : str
        Name of the table: 3 to 63 ASCII letters and digits. In a database it is made by the first use.
    credential, retry_s
        See :class:`StoreTask`.
    parallel : int, >= 1, default 8
        Calls that wait for their answers at once (Azure).
    partition, row : str
        Templates of the partition key and the row key, see :class:`riot_ops.connectors.template.Template`:
        ``{field}`` stands for a field's text, whole numbers with 20 digits, times in microseconds or as
        ``{time:ms}`` in milliseconds. ``|`` separates fields without ambiguity.
    """

    keys: ClassVar[bool] = True

    table: str
    partition: str
    parallel: Count = 8

    def validate(self) -> None:
        super().validate()
        check_table_url(self.store, self.credential)
        check_table(self.table)

    @property
    def rows(self) -> TableStore:
        """The table, opened once per process."""
        return shared_table(self.store, self.table, self.credential, retry_s=self.retry_s, parallel=self.parallel)


def reject(batch: pa.RecordBatch, failures: Failures, dead: DeadLetters) -> npt.NDArray[np.bool_]:
    """Send records to the dead letters by their places; True for each record that is left."""
    keep = np.ones(batch.num_rows, np.bool_)
    reasons: dict[str, list[int]] = {}
    for i in sorted(failures):
        reasons.setdefault(failures[i].reason, []).append(i)
        keep[i] = False
    for reason, rows in reasons.items():
        dead.reject(batch, np.array(rows), reason, [str(failures[i]) for i in rows])
    return keep


def plain_columns(batch: pa.RecordBatch, names: Sequence[str]) -> list[dict[str, Any]]:
    """Fields of each record, as values that stores take."""
    columns = []
    for name in names:
        column = batch.column(name)
        if pa.types.is_timestamp(column.type):  # nanoseconds have no Python value
            column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False)
        columns.append([plain(value) for value in column.to_pylist()])
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


@functools.cache
def scratch() -> Path:
    """A folder for the stores of contract cases, removed at the end of the process."""
    folder = tempfile.mkdtemp(prefix="riot_ops-cases-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)

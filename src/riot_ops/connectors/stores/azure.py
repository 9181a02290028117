"""Blob and table stores in Azure Storage."""

from __future__ import annotations

import contextlib
import datetime as dt
import http.client
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from riot_ops.connectors.retry import Failure, map_parallel, retry
from riot_ops.connectors.stores.blob import BlobStore, check_name
from riot_ops.connectors.stores.table import Key, Row, TableStore
from riot_ops.core.checks import duration_seconds
from riot_ops.core.errors import ConfigError, MissingExtraError, RiotError, excerpt
from riot_ops.core.parameters import Duration
from riot_ops.core.secret import Secret

__all__ = ["AzureBlobs", "AzureTable"]

BLOCK_BYTES = 8 << 20
T = TypeVar("T")

_HINTS = {
    401: "the key or token of the connection string is not accepted",
    403: "the key or token of the connection string is not accepted, or does not allow this",
    404: "it does not exist; create it first, for instance with create()",
}
_TRANSIENT_STATUS = (408, 429, 500, 502, 503, 504)

#: Environment variable with the connection string of the Azure storage account.
AZURE_VARIABLE = "AZURE_STORAGE_CONNECTION_STRING"


class AzureBlobs(BlobStore):
    """Blobs of a container.

    Effectively once: a call that is retried after a transient error writes the same blob again. Blobs above 8 MiB are
    uploaded in blocks of this size and become visible with the last one. Safe to use from several threads.

    Parameters
    ----------
    container : str
    connection : Secret
        The connection string of the storage account.
    retry : timedelta or text such as "1min", default "1min"
        How long a call is retried after transient errors.
    """

    def __init__(self, container: str, connection: Secret, *, retry: Duration = "1min") -> None:
        try:
            from azure.storage.blob import BlobServiceClient, LinearRetry
        except ImportError:
            raise MissingExtraError("azure-blob://", "azure") from None
        self.label = f"azure-blob://{container}"
        self._retry_s = duration_seconds("retry", retry, zero=True)
        self._service = _connected(
            self.label,
            connection,
            BlobServiceClient.from_connection_string,
            max_single_put_size=BLOCK_BYTES,
            max_block_size=BLOCK_BYTES,
            max_single_get_size=BLOCK_BYTES,
            max_chunk_get_size=BLOCK_BYTES,
            # for the blocks of a blob; this class retries the whole call
            retry_policy=LinearRetry(backoff=0, retry_total=1, random_jitter_range=0),
        )
        self._container = self._service.get_container_client(container)

    def create(self) -> None:
        from azure.core.exceptions import ResourceExistsError

        def call() -> None:
            with contextlib.suppress(ResourceExistsError):
                self._container.create_container()

        self._try(f"{self.label} cannot be created", call)

    def list(self, prefix: str = "") -> Iterator[str]:
        def call() -> list[str]:
            return sorted(self._container.list_blob_names(name_starts_with=prefix or None))

        return iter(self._try(f"{self.label} cannot be listed", call))

    def read(self, name: str, max_bytes: int | None = None) -> bytes:
        check_name(name)

        def call() -> bytes:
            from azure.core.exceptions import ResourceNotFoundError

            try:
                found = self._container.download_blob(name, max_concurrency=2)
                self._check_size(name, found.size, max_bytes)
                return bytes(found.readall())
            except ResourceNotFoundError as error:
                if _code(error) == "ContainerNotFound":
                    raise
                raise self._missing(name) from None

        return self._try(f"the blob {excerpt(name)!r} of {self.label} cannot be read", call)

    def write(self, name: str, data: bytes, *, overwrite: bool = True) -> None:
        check_name(name)

        def call() -> None:
            from azure.core.exceptions import ResourceExistsError

            try:
                self._container.upload_blob(name, data, overwrite=overwrite, max_concurrency=2)
            except ResourceExistsError:
                if self.read(name) != data:
                    raise self._exists(name) from None

        self._try(f"the blob {excerpt(name)!r} of {self.label} cannot be written", call)

    def delete(self, name: str) -> None:
        check_name(name)

        def call() -> None:
            from azure.core.exceptions import ResourceNotFoundError

            try:
                self._container.delete_blob(name)
            except ResourceNotFoundError as error:
                if _code(error) == "ContainerNotFound":
                    raise

        self._try(f"the blob {excerpt(name)!r} of {self.label} cannot be deleted", call)

    def close(self) -> None:
        self._service.close()

    def _try(self, what: str, call: Callable[[], T]) -> T:
        return retry(what, call, explain_failure, self._retry_s)


class AzureTable(TableStore):
    """Rows of one table.

    Effectively once: rows are upserted in transactions of at most 100 rows of one partition, which are retried after
    transient errors. Safe to use from several threads.

    Parameters
    ----------
    table : str
    connection : Secret
        The connection string of the storage account.
    retry : timedelta or text such as "1min", default "1min"
        How long a call is retried after transient errors.
    max_concurrency : int, default 8
        Number of concurrent transactions or look-ups.
    """

    def __init__(self, table: str, connection: Secret, *, retry: Duration = "1min", max_concurrency: int = 8) -> None:
        try:
            from azure.data.tables import TableServiceClient
        except ImportError:
            raise MissingExtraError("azure-table://", "azure") from None
        self.label = f"the table {table} of azure-table://"
        self._retry_s = duration_seconds("retry", retry, zero=True)
        self.max_concurrency = max_concurrency
        self._service = _connected(self.label, connection, TableServiceClient.from_connection_string, retry_total=0)
        self._table = self._service.get_table_client(table)

    def create(self) -> None:
        self._try(
            f"{self.label} cannot be created", lambda: self._service.create_table_if_not_exists(self._table.table_name)
        )

    def upsert_chunks(self, chunks: Sequence[Sequence[Row]]) -> list[Sequence[Row]]:
        return [
            rows
            for rows, done in zip(chunks, map_parallel(self._chunk, chunks, self.max_concurrency), strict=True)
            if not done
        ]

    def _chunk(self, rows: Sequence[Row]) -> bool:
        """Write rows of one partition; False if the service refuses their content."""
        entities = [_entity(row) for row in rows]

        def call() -> bool:
            from azure.core.exceptions import HttpResponseError
            from azure.data.tables import UpdateMode

            try:
                if len(entities) == 1:
                    self._table.upsert_entity(entities[0], mode=UpdateMode.REPLACE)
                else:
                    self._table.submit_transaction(("upsert", e, {"mode": UpdateMode.REPLACE}) for e in entities)
            except HttpResponseError as error:
                if error.status_code not in (400, 413):
                    raise
                return False
            return True

        return self._try(f"rows cannot be written to {self.label}", call)

    def get(self, keys: Sequence[Key]) -> list[dict[str, Any] | None]:
        distinct = list(dict.fromkeys(keys))
        found = dict(zip(distinct, map_parallel(self._get, distinct, self.max_concurrency), strict=True))
        return [found[key] for key in keys]

    def _get(self, key: Key) -> dict[str, Any] | None:
        def call() -> dict[str, Any] | None:
            from azure.core.exceptions import ResourceNotFoundError

            try:
                return _values(self._table.get_entity(*key))
            except ResourceNotFoundError as error:
                if _code(error) == "TableNotFound":
                    raise
                return None

        return self._try(f"a row of {self.label} cannot be read", call)

    def range(self, partition: str, start: str, end: str, max_rows: int | None = None) -> list[Row]:
        def call() -> list[Row]:
            found = []
            for entity in self._table.query_entities(
                "PartitionKey eq @partition and RowKey ge @start and RowKey lt @end",
                parameters={"partition": partition, "start": start, "end": end},
            ):
                found.append(Row(partition, entity["RowKey"], _values(entity)))
                self._check_count(found, max_rows)
            return found

        return sorted(self._try(f"a range of {self.label} cannot be read", call), key=lambda row: row.row)

    def close(self) -> None:
        self._service.close()

    def _try(self, what: str, call: Callable[[], T]) -> T:
        return retry(what, call, explain_failure, self._retry_s)


def _entity(row: Row) -> dict[str, Any]:
    from azure.data.tables import EdmType, EntityProperty

    def typed(value: Any) -> Any:
        # the service reads a plain number as 32 bits
        whole = isinstance(value, int) and not isinstance(value, bool)
        return EntityProperty(value, EdmType.INT64) if whole else value

    return {"PartitionKey": row.partition, "RowKey": row.row, **{n: typed(v) for n, v in row.values.items()}}


def _values(entity: Any) -> dict[str, Any]:
    from azure.data.tables import EntityProperty

    def plain(value: Any) -> Any:
        if isinstance(value, EntityProperty):
            return value.value
        if isinstance(value, dt.datetime):  # a subclass of the client library
            return dt.datetime.combine(value.date(), value.timetz())
        return value

    return {n: plain(v) for n, v in entity.items() if n not in ("PartitionKey", "RowKey")}


# -- connections and failures ----------------------------------------------------------------------


def _connected(label: str, connection: Secret, factory: Callable[..., Any], **options: Any) -> Any:
    """Create a client from a connection string; errors do not show the string."""
    logging.getLogger("urllib3.connectionpool").addFilter(_mask_token)
    text = connection.reveal()
    try:
        return factory(text, connection_timeout=10, read_timeout=60, **options)
    except ValueError:
        pass
    raise ConfigError(f"{label}: the connection string is malformed")


def _mask_token(record: logging.LogRecord) -> bool:
    """Mask the signature of a shared access token in URLs that urllib3 logs at debug level."""
    if isinstance(record.args, tuple):
        record.args = tuple(re.sub(r"\bsig=[^&\s]+", "sig=***", a) if isinstance(a, str) else a for a in record.args)
    return True


def _code(error: Any) -> str:
    """Return the error code of the service."""
    code = getattr(error, "error_code", None) or ""
    return str(getattr(code, "value", code))


def explain_failure(error: Exception) -> Failure | None:
    """Explain an exception by status and code, or by the network error; not by its text, which may quote the URL."""
    from azure.core.exceptions import AzureError, HttpResponseError, ServiceRequestError, ServiceResponseError

    if isinstance(error, RiotError):
        return None
    if isinstance(error, HttpResponseError) and error.status_code is not None:
        status = " ".join(filter(None, [f"HTTP {error.status_code}", _code(error)]))
        hint = _HINTS.get(error.status_code)
        return Failure(f"{status}: {hint}" if hint else status, error.status_code in _TRANSIENT_STATUS)
    if isinstance(error, (AzureError, http.client.HTTPException, OSError)):
        transient = not isinstance(error, AzureError) or isinstance(error, (ServiceRequestError, ServiceResponseError))
        transient = transient or type(error).__name__ == "IncompleteReadError"
        return Failure(_innermost(error), transient)
    return None


def _innermost(error: BaseException) -> str:
    """Return the reason that the operating system reports, such as ``Connection refused``."""
    for _ in range(10):
        if isinstance(error, OSError) and error.strerror:
            return error.strerror
        inner = getattr(error, "inner_exception", None) or getattr(error, "reason", None)
        inner = inner if isinstance(inner, BaseException) else error.__cause__ or error.__context__
        if inner is None:
            break
        error = inner
    return type(error).__name__

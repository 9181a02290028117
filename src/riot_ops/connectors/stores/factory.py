"""Stores by URL: the only module that imports all implementations."""

from __future__ import annotations

import re

from riot_ops.connectors.retry import shared_client
from riot_ops.connectors.stores.azure import AZURE_VARIABLE, AzureBlobs, AzureTable
from riot_ops.connectors.stores.blob import BlobStore
from riot_ops.connectors.stores.folder import FolderBlobs
from riot_ops.connectors.stores.memory import MemoryBlobs
from riot_ops.connectors.stores.sql_stores import SqlBlobs, SqlTableStore
from riot_ops.connectors.stores.sql_url import check_sql_url
from riot_ops.connectors.stores.table import TableStore, check_table
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Duration
from riot_ops.core.paths import local_path
from riot_ops.core.secret import Secret

__all__ = ["check_blob_url", "check_table_url", "open_blobs", "open_table", "shared_blobs", "shared_table"]


def check_blob_url(url: str, credential: Secret | None = None) -> tuple[str, str]:
    """Parse the URL of a blob store to its kind and place; :class:`ConfigError` if it is invalid.

    The error shows the URL, which may contain a token by mistake, only if it is well-formed.
    """
    if url == "memory":
        return "memory", ""
    scheme, separator, rest = url.partition("://")
    if not separator:
        if not url:
            raise ConfigError("store must be the address of a blob store, got ''")
        return "file", url
    if scheme == "file":
        return "file", str(local_path(url, "store"))
    if scheme == "memory":
        return "memory", rest
    if scheme == "azure-blob":
        if not re.fullmatch(r"[a-z0-9](?:-?[a-z0-9]){2,62}", rest) or len(rest) > 63:
            raise ConfigError(
                "store: azure-blob://CONTAINER takes only the name of a container: 3 to 63 lower-case letters, "
                "digits and single hyphens"
            )
        return "azure", rest
    others = "a folder, file:///folder, azure-blob://container, memory://name"
    check_sql_url("store", url, others, credential=credential)
    return "sql", url


def open_blobs(url: str, credential: Secret | None = None, *, retry: Duration = "1min") -> BlobStore:
    """Open a blob store by its URL.

    Parameters
    ----------
    url : str
        A folder (path or ``file:///path``), ``azure-blob://container``, ``memory`` or ``memory://name``
        (for tests), or the URL of a database such as ``sqlite:///file.db`` (extra ``sql``).
    credential : Secret, optional
        For Azure the connection string, by default the value of the environment variable
        ``AZURE_STORAGE_CONNECTION_STRING``; for a database the password.
    retry : timedelta or text such as "1min", default "1min"
        How long a call is retried after transient errors.

    Examples
    --------
    >>> with open_blobs("memory://doc") as store:
    ...     store.write("greeting", b"hello")
    ...     store.read("greeting")
    b'hello'
    """
    kind, place = check_blob_url(url, credential)
    if kind == "file":
        return FolderBlobs(place)
    if kind == "memory":
        return MemoryBlobs(place)
    if kind == "sql":
        return SqlBlobs(url, credential, retry=retry)
    return AzureBlobs(place, credential or Secret.env(AZURE_VARIABLE), retry=retry)


def shared_blobs(url: str, credential: Secret | None = None, *, retry: Duration = "1min") -> BlobStore:
    """Like :func:`open_blobs`, but opened once per process and closed at exit."""
    if credential is None and check_blob_url(url)[0] == "azure":
        credential = Secret.env(AZURE_VARIABLE)
    return shared_client(open_blobs, url, credential, retry=retry)


def check_table_url(url: str, credential: Secret | None = None) -> str:
    """Parse the URL of a table service to its kind; :class:`ConfigError` if it is invalid."""
    if url == "memory":
        return "memory"
    if url in ("azure-table", "azure-table://"):
        return "azure"
    check_sql_url("store", url, "azure-table://, sqlite:///file.db, memory", credential=credential)
    return "sql"


def open_table(
    url: str, table: str, credential: Secret | None = None, *, retry: Duration = "1min", max_concurrency: int = 8
) -> TableStore:
    """Open a table by the URL of its service and its name.

    Parameters
    ----------
    url : str
        ``azure-table://`` (extra ``azure``), the URL of a database such as ``sqlite:///file.db``, or
        ``memory`` (extra ``sql``).
    table : str
        3 to 63 letters and digits.
    credential : Secret, optional
        For Azure the connection string, by default the value of the environment variable
        ``AZURE_STORAGE_CONNECTION_STRING``; for a database the password.
    retry : timedelta or text such as "1min", default "1min"
        How long a call is retried after transient errors.
    max_concurrency : int, default 8
        Number of concurrent calls, if the store supports them.

    Examples
    --------
    >>> from riot_ops.connectors.stores import Row
    >>> store = open_table("memory", "readings")
    >>> store.insert([Row("p", "1", {"value": 1.5}), Row("p", "2", {"value": 2.5})])
    {}
    >>> store.get([("p", "2"), ("p", "9")]), [row.row for row in store.range("p", "1", "2")]
    ([{'value': 2.5}, None], ['1'])
    """
    check_table(table)
    kind = check_table_url(url, credential)
    if kind == "azure":
        return AzureTable(table, credential or Secret.env(AZURE_VARIABLE), retry=retry, max_concurrency=max_concurrency)
    return SqlTableStore("sqlite://" if kind == "memory" else url, table, credential, retry=retry)


def shared_table(
    url: str, table: str, credential: Secret | None = None, *, retry: Duration = "1min", max_concurrency: int = 8
) -> TableStore:
    """Like :func:`open_table`, but opened once per process and closed at exit."""
    if credential is None and check_table_url(url) == "azure":
        credential = Secret.env(AZURE_VARIABLE)
    return shared_client(open_table, url, table, credential, retry=retry, max_concurrency=max_concurrency)

"""Where a Delta table is: its address, its storage settings, its files, and errors that name it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa

from riot_ops.core.errors import DAMAGED, EXCERPT_LENGTH, ConfigError, ConnectorError, MissingExtraError, excerpt
from riot_ops.core.paths import local_path, scheme_of
from riot_ops.core.secret import Secret

__all__ = ["TableLocation", "deltalake"]

#: Kinds of addresses that delta-rs has a store for.
SCHEMES = ("s3", "s3a", "gs", "az", "abfs", "abfss", "adl")
#: The setting with another address of S3; where it has no TLS, delta-rs wants to be told that this is meant.
ENDPOINT = "aws_endpoint_url"
#: By a part of a message, what helps.
REMEDIES = (
    (
        r"\b403\b|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|Forbidden|\b401\b|Unauthorized",
        "the store refuses these credentials: check storage_options, and what the account may do there",
    ),
    (r"NoSuchBucket|ContainerNotFound", "the bucket or container does not exist: create it or correct the address"),
    (r"(?i)permission denied", "this user may not read or write there"),
    (r"(?i)no space left|disk quota", "make room"),
    (r"(?i)missing region|imds|169\.254", "give the region and the credentials of the store as storage_options"),
    (DAMAGED, "a file of it is damaged or not complete: restore it, or the table in an earlier version"),
)
DEFAULT_REMEDY = "check the address, storage_options, and whether the store can be reached"


def deltalake() -> ModuleType:
    """Import delta-rs."""
    try:
        import deltalake as module
    except ImportError:
        raise MissingExtraError("a Delta table", "delta") from None
    return module


@dataclass(frozen=True)
class TableLocation:
    """The folder of a table, and how to reach it.

    Attributes
    ----------
    address : str
        An absolute path, or a URI of an object store.
    options : mapping of str to str or Secret
        Settings of the store, as delta-rs names them.

    Examples
    --------
    >>> TableLocation.of("/lake", {}).child("out").address
    '/lake/out'
    >>> TableLocation.of("hdfs://host/lake", {})
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: folder is an address of the kind hdfs:, for which delta-rs has no store; it has
    s3:, s3a:, gs:, az:, abfs:, abfss:, adl:, and takes paths and file:///…
    """

    address: str
    options: Mapping[str, str | Secret]

    @classmethod
    def of(cls, folder: str | Path, options: Mapping[str, str | Secret], what: str = "folder") -> TableLocation:
        """Check an address, whose option is named ``what``."""
        scheme = scheme_of(folder) if isinstance(folder, str | Path) else ""
        if scheme in ("", "file"):
            return cls(str(local_path(folder, what).absolute()), options)
        if scheme not in SCHEMES:
            raise ConfigError(
                f"{what} is an address of the kind {scheme}:, for which delta-rs has no store; it has "
                f"{', '.join(f'{one}:' for one in SCHEMES)}, and takes paths and file:///…"
            )
        parts = urlsplit(str(folder))
        if parts.password is not None or (parts.username is not None and not scheme.startswith("abfs")):
            raise ConfigError(f"{what} must not hold credentials: give them as storage_options, as a Secret")
        if not parts.netloc or parts.query or parts.fragment:
            raise ConfigError(f"{what} must be of the form {scheme}://bucket/folder, without '?' and '#'")
        return cls(str(folder).rstrip("/"), options)

    def child(self, name: str) -> TableLocation:
        """Return the place of a folder in it."""
        return TableLocation(f"{self.address.rstrip('/')}/{name}", self.options)

    @property
    def local(self) -> Path | None:
        """The folder, if it is on this machine."""
        return None if scheme_of(self.address) else Path(self.address)

    @property
    def storage_options(self) -> dict[str, str]:
        """The settings in plain text, for delta-rs."""
        plain = {name: v.reveal() if isinstance(v, Secret) else v for name, v in self.options.items()}
        endpoint = next((v for n, v in plain.items() if n.lower() == ENDPOINT), os.environ.get(ENDPOINT.upper(), ""))
        return {"aws_allow_http": "true", **plain} if endpoint.startswith("http:") else plain

    @cached_property
    def files(self) -> Any:
        """The files in the folder, as a file system of Arrow with paths relative to it."""
        import pyarrow.fs as arrow_files

        if self.local is not None:
            return arrow_files.SubTreeFileSystem(str(self.local), arrow_files.LocalFileSystem())
        deltalake()
        from deltalake.fs import DeltaStorageHandler

        with self.translating_errors("opened"):
            return arrow_files.PyFileSystem(DeltaStorageHandler(self.address, self.storage_options))

    def __getstate__(self) -> dict[str, Any]:
        return {"address": self.address, "options": self.options}  # file systems stay in their process

    def open(self, version: int | None = None) -> Any:
        """Return the table, in a version or the latest; None if there is none."""
        library = deltalake()
        with self.translating_errors("opened"):
            try:
                return library.DeltaTable(self.address, version, self.storage_options)
            except library.exceptions.TableNotFoundError:
                return None

    @contextmanager
    def translating_errors(self, what: str) -> Iterator[None]:
        """Raise errors of libraries as one that names the table, and what helps."""
        library = deltalake()
        try:
            yield
        except ConnectorError:
            raise
        except (library.exceptions.DeltaError, OSError, pa.ArrowException) as error:
            raise self.error(what, error) from None

    def error(self, what: str, error: BaseException) -> ConnectorError:
        """Return the error that the table cannot be opened, read or written."""
        text = " ".join(re.sub(r"\x1b\[[\d;]*m|↳", " ", str(error)).split())  # delta-rs colours its messages
        text = text.partition(" 0: <unknown>")[0]  # and shows where it was
        if found := re.search(r"(<\?xml.*)?<Error><Code>(.*?)</Code><Message>(.*?)</Message>.*", text):
            text = f"{text[: found.start()]}{found[2]}: {found[3]}"
        for value in self.options.values():
            text = text.replace(value.reveal(), "***") if isinstance(value, Secret) else text
        remedy = next((helps for pattern, helps in REMEDIES if re.search(pattern, text)), DEFAULT_REMEDY)
        return ConnectorError(f"the Delta table {self.address} cannot be {what}: {_both_ends(text)}; {remedy}")


def _both_ends(text: str) -> str:
    """Return the beginning and the end of a long message, which has its cause last."""
    return text if len(text) <= 2 * EXCERPT_LENGTH else f"{excerpt(text)} … {text[-EXCERPT_LENGTH:]}"

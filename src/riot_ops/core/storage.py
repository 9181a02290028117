"""Addresses of object stores and other file systems: opened once per process, with retries and clear errors."""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar, overload
from urllib.parse import urlsplit

from riot_ops.core.errors import ConfigError, ConnectorError, MissingExtraError, excerpt
from riot_ops.core.paths import local_path, scheme_of
from riot_ops.core.secret import Secret, names_secret

__all__ = ["Address", "StoredFile", "check_storage_options", "is_address", "open_place"]

T = TypeVar("T")

#: Folders in which Databricks shows the volumes of Unity Catalog, through FUSE: without renames that are atomic, locks
#: and appends.
VOLUMES = "/Volumes/"
#: Pauses in seconds before an operation that has failed is tried again.
PAUSES = (0.2, 0.8, 2.4)
CHUNK = 8 << 20

#: By kind of store, its settings, by the names of the clouds' own tools, delta-rs and Polars: as ``storage_options`` in
#: lower or upper case, as variables of the environment in upper case.
SETTINGS: dict[str, tuple[str, ...]] = {
    "s3": (
        "aws_access_key_id",
        "aws_secret_access_key",
        "aws_session_token",
        "aws_region",
        "aws_default_region",
        "aws_endpoint_url",
        "aws_endpoint_url_s3",
        "aws_skip_signature",
        "aws_virtual_hosted_style_request",
    ),
    "azure": (
        "azure_storage_connection_string",
        "azure_storage_account_name",
        "azure_storage_account",
        "azure_storage_account_key",
        "azure_storage_key",
        "azure_storage_sas_token",
        "azure_tenant_id",
        "azure_client_id",
        "azure_client_secret",
    ),
    "gs": ("google_application_credentials", "storage_emulator_host", "google_cloud_project"),
    "hdfs": ("hadoop_user_name",),
}
FAMILY = {
    "s3": "s3",
    "s3a": "s3",
    "abfss": "azure",
    "abfs": "azure",
    "az": "azure",
    "gs": "gs",
    "gcs": "gs",
    "hdfs": "hdfs",
}
CREDENTIALS = "the store refuses these credentials: check them, and what the account may do there"
#: By a part of a message, what helps. Such errors are not tried again.
REMEDIES = (
    (
        r"ACCESS_DENIED|AccessDenied|INVALID_ACCESS_KEY|SIGNATURE|AuthenticationFailed|AuthorizationFailure|Forbidden"
        r"|HTTP (status )?40[13]|\b40[13]\b|Unauthenticated|PermissionDenied|No credentials|NoCredentials",
        CREDENTIALS,
    ),
    (
        r"NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound|container does not exist|bucket does not exist"
        r"|NOT_FOUND.*function=(CreateResumableUpload|InsertObjectMedia)",
        "create the bucket or container, or correct the address",
    ),
    (r"(?i)permission denied", "this user may not read or write there"),
    (r"(?i)no space left|disk quota", "make room"),
)
DEFAULT_REMEDY = "check the address, the settings of the store (storage_options), and whether it can be reached"


def check_storage_options(options: Any) -> dict[str, str | Secret]:
    """Return the settings of a store if they are texts, and secrets where they must be; an error shows no value.

    >>> check_storage_options({"aws_region": "eu-central-1"})
    {'aws_region': 'eu-central-1'}
    >>> check_storage_options({"aws_secret_access_key": "pa55"})
    Traceback (most recent call last):
    riot_ops.core.errors.ConfigError: storage_options['aws_secret_access_key'] must be a secret: give Secret.env('NAME')
    or Secret('...')
    """
    if not isinstance(options, Mapping):
        raise ConfigError(f"storage_options must be a mapping of name to text or Secret, got {type(options).__name__}")
    for name, value in options.items():
        if not isinstance(name, str) or not isinstance(value, str | Secret):
            raise ConfigError(
                f"storage_options[{name!r}] must be a text, or a Secret for what must not be shown, "
                f"got {type(value).__name__}"
            )
        if isinstance(value, str) and names_secret(name):
            raise ConfigError(f"storage_options[{name!r}] must be a secret: give Secret.env('NAME') or Secret('...')")
    return dict(options)


def is_address(place: object) -> bool:
    """Whether a path is in a store without atomic renames: neither plain nor ``file:``, or in a Databricks volume.

    >>> is_address("s3://bucket/out"), is_address("/Volumes/main/plant/out"), is_address("file:///out")
    (True, True, False)
    """
    if isinstance(place, Address):
        return True
    if not isinstance(place, str | os.PathLike) or not isinstance(os.fspath(place), str):
        return False
    return scheme_of(place) not in ("", "file") or os.fspath(place).startswith(VOLUMES)


def open_place(
    place: str | os.PathLike[str] | Address, options: Mapping[str, str | Secret] | None = None, what: str = "path"
) -> Path | Address:
    """Return a local path, absolute, or an address; ConfigError for any other, and for settings without a store.

    >>> open_place("s3://bucket/out/"), open_place("file:///out")
    (Address('s3://bucket/out'), PosixPath('/out'))
    """
    if isinstance(place, Address):
        return place
    if is_address(place):
        return Address.of(place, options or {}, what)
    found = local_path(place, what).absolute()
    if options:
        raise ConfigError(f"storage_options are for object stores, and {what} is the path {found}")
    return found


class StoredFile(NamedTuple):
    """A file in a folder of an address."""

    name: str
    size: int


@dataclass(frozen=True)
class Address:
    """A file or folder in an object store or another file system; picklable, and safe to show.

    Addresses of a store share one client in each process. An operation that fails is tried again after a pause, unless
    the reason stays; then a :class:`ConnectorError` names the address and the remedy.

    Parameters
    ----------
    url : str
        ``s3://bucket/key``, ``gs://bucket/key``, ``abfss://container@account.dfs.core.windows.net/path``,
        ``az://container/path``, ``hdfs://host:port/path``, a path in a Databricks volume, or an address of any protocol
        of fsspec. Use :meth:`of`, which checks it.
    options : tuple of pairs
        Settings of the store by name, sorted.
    """

    url: str
    options: tuple[tuple[str, str | Secret], ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, url: Any, options: Mapping[str, str | Secret], what: str = "path") -> Address:
        """Check an address, whose parameter is named ``what``, and the settings of its store."""
        text = os.fspath(url)
        checked = check_storage_options(options)
        scheme = scheme_of(text)
        if scheme:
            _check_url(text, scheme, what)
            _check_settings(checked, scheme)
        elif checked:
            raise ConfigError(f"storage_options are for object stores, and {what} is the path {text}")
        return cls(text.rstrip("/"), tuple(sorted(checked.items())))

    def __truediv__(self, name: str) -> Address:
        return Address(f"{self.url}/{name}", self.options)

    def __repr__(self) -> str:
        return f"Address({self.url!r})"

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part."""
        return self.url.rpartition("/")[2]

    @property
    def parent(self) -> Address:
        """The folder that it is in."""
        return Address(self.url.rpartition("/")[0], self.options)

    @property
    def scheme(self) -> str:
        """The scheme; empty for a path."""
        return scheme_of(self.url)

    # -- operations ------------------------------------------------------------------------------------

    def read(self) -> bytes | None:
        """Return the content of a file; None if there is none."""

        def get() -> bytes | None:
            system, path = self._opened()
            try:
                with system.open_input_stream(path, compression=None) as file:
                    return bytes(file.read())
            except FileNotFoundError:
                return None

        return self._attempt("read", get)

    def open(self) -> Any:
        """Open a file for reading at any position, as a file of Arrow."""

        def open_file() -> Any:
            system, path = self._opened()
            return system.open_input_file(path)

        return self._attempt("read", open_file)

    def size(self) -> int | None:
        """Return the size of a file; None if there is none."""

        def ask() -> int | None:
            system, path = self._opened()
            found = system.get_file_info(path)
            return int(found.size) if found.is_file else None

        return self._attempt("read", ask)

    def write(self, data: bytes | BinaryIO) -> None:
        """Write a file, which replaces one of that name; object stores show it when it is complete."""
        file = io.BytesIO(data) if isinstance(data, bytes) else data

        def put() -> None:
            system, path = self._opened()
            file.seek(0)
            if not self.scheme:  # a folder must exist there
                system.create_dir(path.rpartition("/")[0], recursive=True)
            with system.open_output_stream(path, compression=None) as stream:
                while chunk := file.read(CHUNK):
                    stream.write(chunk)

        self._attempt("written", put)

    def delete(self) -> None:
        """Remove a file, if there is one."""

        def remove() -> None:
            system, path = self._opened()
            with contextlib.suppress(FileNotFoundError):
                system.delete_file(path)

        self._attempt("removed", remove)

    def files(self) -> list[StoredFile]:
        """Return the files in a folder by name, without those in folders below it; none if it is no folder."""
        return [StoredFile(one.base_name, int(one.size or 0)) for one in self._infos() if one.is_file]

    def folders(self) -> list[str]:
        """Return the names of the folders in a folder."""
        if FAMILY.get(self.scheme) == "gs":  # whose client lists none that has no object of its own
            depth = len(self._opened()[1].rstrip("/").split("/"))
            below = [one.path.split("/") for one in self._infos(recursive=True)]
            return sorted({parts[depth] for parts in below if len(parts) > depth + 1})
        return [one.base_name for one in self._infos() if not one.is_file]

    def check(self) -> None:
        """Ask for the content of the folder, to raise errors of credentials and missing buckets at the start."""
        self._infos()

    def _infos(self, recursive: bool = False) -> list[Any]:
        from pyarrow import fs

        def ask() -> list[Any]:
            system, path = self._opened()
            # a store may find no folder in a missing bucket
            try:
                found = system.get_file_info(fs.FileSelector(path, allow_not_found=True, recursive=recursive))
            except NotADirectoryError:
                found = []
            return sorted(found, key=lambda one: str(one.base_name))

        return self._attempt("listed", ask)

    def _opened(self) -> tuple[Any, str]:
        key = (os.getpid(), self.scheme, self._authority(), self.options)
        if key not in _OPENED:
            _OPENED[key] = _open(self.url, self.scheme, _Settings(self.scheme, dict(self.options)))
        system, to_path = _OPENED[key]
        return system, to_path(self.url)

    def _authority(self) -> str:
        return urlsplit(self.url).netloc if self.scheme else ""

    def _attempt(self, what: str, operation: Callable[[], T]) -> T:
        for pause in (*PAUSES, None):
            try:
                return operation()
            except ConnectorError:
                raise
            except (OSError, ValueError) as error:
                text = self._without_secrets(" ".join(str(error).split()))
                remedy = next((remedy for pattern, remedy in REMEDIES if re.search(pattern, text)), None)
                if pause is None or remedy is not None or isinstance(error, FileNotFoundError | PermissionError):
                    raise ConnectorError(
                        f"{self.url} cannot be {what}: {excerpt(text, 300)}; {remedy or DEFAULT_REMEDY}"
                    ) from None
                time.sleep(pause)
        raise AssertionError

    def _without_secrets(self, text: str) -> str:
        settings = _Settings(self.scheme, dict(self.options))
        for value in settings.secrets():
            text = text.replace(value, "***")
        return text


#: The open file systems by process, scheme, authority and settings, each with the function from address to its path.
_OPENED: dict[tuple[Any, ...], tuple[Any, Callable[[str], str]]] = {}


class _Settings:
    """Settings of a store: those given, or else those of the environment."""

    def __init__(self, scheme: str, given: Mapping[str, str | Secret]) -> None:
        self._names = SETTINGS.get(FAMILY.get(scheme, ""), ())
        self.given: dict[str, str] = {
            name.lower() if self._names else name: value.reveal() if isinstance(value, Secret) else value
            for name, value in given.items()
        }

    @overload
    def get(self, *names: str, default: str) -> str: ...
    @overload
    def get(self, *names: str) -> str | None: ...
    def get(self, *names: str, default: str | None = None) -> str | None:
        """Return the first setting of these names that is given, or else the first in the environment."""
        for source in (self.given, {name: os.environ.get(name.upper(), "") for name in names}):
            for name in names:
                if source.get(name):
                    return source[name]
        return default

    def flag(self, name: str) -> bool:
        return self.get(name, default="").lower() in ("1", "true", "yes")

    def secrets(self) -> Iterable[str]:
        """Return the values that no message may show."""
        names = self._names or tuple(self.given)
        shown = ("region", "endpoint", "account_name", "skip", "virtual", "emulator", "project", "_id", "user_name")
        for name in names:
            if not any(word in name for word in shown) and name != "azure_storage_account":
                value = self.get(name)
                if value and len(value) > 7:
                    yield value


def _check_url(text: str, scheme: str, what: str) -> None:
    try:
        parts = urlsplit(text)
    except ValueError:
        raise ConfigError(f"{what} is no address: a host in brackets must be one of IPv6") from None
    azure = FAMILY.get(scheme) == "azure"
    if parts.password is not None or (parts.username is not None and not azure):
        raise ConfigError(
            f"{what} is a {scheme}: address, which must not hold credentials: give them in the environment or as "
            "storage_options"
        )
    if "\0" in text:
        raise ConfigError(f"{what} must be an address without NUL characters, got {text!r}")
    if FAMILY.get(scheme) == "hdfs":
        return
    if scheme in FAMILY:
        if not parts.netloc or parts.query or parts.fragment:
            raise ConfigError(f"{what} must be of the form {scheme}://bucket/folder, without '?' and '#'")
        if parts.username is not None and not re.fullmatch(r"[^@/]+@[a-z0-9]+\.[\w.-]+(:\d+)?", parts.netloc):
            raise ConfigError(f"{what} must be of the form {scheme}://container@account.dfs.core.windows.net/folder")
        return
    try:
        import fsspec
    except ImportError:
        raise MissingExtraError(f"an address of the kind {scheme}:", "s3") from None
    if scheme not in fsspec.available_protocols():
        raise ConfigError(  # does not show the rest, which may hold a password
            f"{what} is an address of the kind {scheme}:, which is not supported here: give a path, file:///…, "
            "s3://, gs://, abfss://, az://, hdfs://, or a protocol that fsspec knows"
        )


def _check_settings(options: Mapping[str, Any], scheme: str) -> None:
    names = SETTINGS.get(FAMILY.get(scheme, ""))
    if names is None:
        return  # those of an fsspec file system are its parameters
    for name in options:
        if name.lower() not in names:
            raise ConfigError(
                f"storage_options[{name!r}] is no setting of {scheme}: addresses; they are {', '.join(names)}"
            )


def _open(url: str, scheme: str, settings: _Settings) -> tuple[Any, Callable[[str], str]]:
    """Open the file system of an address; returns it and how it calls an address."""
    from pyarrow import fs

    family = FAMILY.get(scheme, scheme)
    if not scheme:
        return fs.LocalFileSystem(), str
    if family == "s3":
        return _open_s3(settings), _bucket_path
    if family == "gs":
        return _open_gcs(settings), _bucket_path
    if family == "azure":
        return _open_azure(url, settings), _container_path
    if family == "hdfs":
        parts = urlsplit(url)
        try:
            user = settings.get("hadoop_user_name")
            system = fs.HadoopFileSystem(parts.hostname or "default", parts.port or 0, user=user)
        except OSError as error:
            raise ConnectorError(
                f"{url} cannot be opened: {excerpt(str(error))}; hdfs: needs Java and Hadoop's libraries: set "
                "HADOOP_HOME, ARROW_LIBHDFS_DIR and CLASSPATH (hadoop classpath --glob)"
            ) from None
        return system, lambda one: urlsplit(one).path
    import fsspec

    try:
        other = fsspec.filesystem(scheme, **settings.given)
    except ImportError as error:
        raise ConfigError(f"addresses of the kind {scheme}: need a library: {excerpt(str(error))}") from None
    return fs.PyFileSystem(fs.FSSpecHandler(other)), other._strip_protocol  # noqa: SLF001 (its name for every subclass)


def _bucket_path(url: str) -> str:
    return url.partition("://")[2]


def _container_path(url: str) -> str:
    parts = urlsplit(url)
    container = parts.username if parts.username is not None else parts.netloc
    return f"{container}{parts.path}"


def _open_s3(settings: _Settings) -> Any:
    from pyarrow import fs

    options: dict[str, Any] = {
        "access_key": settings.get("aws_access_key_id"),
        "secret_key": settings.get("aws_secret_access_key"),
        "session_token": settings.get("aws_session_token"),
        "region": settings.get("aws_region", "aws_default_region"),
        "endpoint_override": settings.get("aws_endpoint_url_s3", "aws_endpoint_url"),
        "anonymous": settings.flag("aws_skip_signature"),
        "force_virtual_addressing": settings.flag("aws_virtual_hosted_style_request"),
        "connect_timeout": 5.0,
        "request_timeout": 10.0,
        "retry_strategy": fs.AwsStandardS3RetryStrategy(max_attempts=2),
    }
    if not options["access_key"] or not options["secret_key"]:
        # then the client looks for credentials where Amazon's tools keep them
        del options["access_key"], options["secret_key"], options["session_token"]
    if options["anonymous"]:
        options = {k: v for k, v in options.items() if k not in ("access_key", "secret_key", "session_token")}
    if "allow_delayed_open" in str(inspect.getdoc(fs.S3FileSystem)):  # a small file is then one request
        options["allow_delayed_open"] = True
    return fs.S3FileSystem(**options)


def _open_gcs(settings: _Settings) -> Any:
    from datetime import timedelta

    from pyarrow import fs

    options: dict[str, Any] = {"retry_time_limit": timedelta(seconds=30)}
    if host := settings.get("storage_emulator_host"):
        scheme, _, rest = host.rpartition("://")
        options |= {"anonymous": True, "scheme": scheme or "http", "endpoint_override": rest.rstrip("/")}
    if project := settings.get("google_cloud_project"):
        options["project_id"] = project
    if file := settings.given.get("google_application_credentials"):
        os.environ.setdefault("GOOGLE_APPLICATION_CREDENTIALS", file)  # Google's client reads nothing else
    return fs.GcsFileSystem(**options)


def _open_azure(url: str, settings: _Settings) -> Any:
    from pyarrow import fs

    if not hasattr(fs, "AzureFileSystem"):
        raise ConfigError("this pyarrow has no file system of Azure: use one of version 20 or later")
    text = settings.get("azure_storage_connection_string", default="")
    connection = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
    netloc = urlsplit(url).netloc
    host = netloc.rpartition("@")[2] if "@" in netloc else ""
    name = (
        host.partition(".")[0]
        or settings.get("azure_storage_account_name", "azure_storage_account")
        or connection.get("AccountName")
    )
    if not name:
        raise ConfigError(
            f"{url} names no storage account: use abfss://container@account.dfs.core.windows.net/…, or set "
            "AZURE_STORAGE_ACCOUNT_NAME or AZURE_STORAGE_CONNECTION_STRING"
        )
    options: dict[str, Any] = {"account_name": name}
    if connection.get("AccountName") not in (None, name):
        connection = {}  # of another account
    endpoint = connection.get("BlobEndpoint", "")
    if endpoint:
        parts = urlsplit(endpoint)
        emulated = parts.path.strip("/") == name  # path style
        authority = parts.netloc if emulated else f".{parts.netloc.partition('.')[2]}"
        options |= {"blob_storage_authority": authority, "blob_storage_scheme": parts.scheme}
        if emulated:
            options |= {"dfs_storage_authority": authority, "dfs_storage_scheme": parts.scheme}
    key = settings.get("azure_storage_account_key", "azure_storage_key") or connection.get("AccountKey")
    sas = settings.get("azure_storage_sas_token") or connection.get("SharedAccessSignature")
    if key:
        options["account_key"] = key
    elif sas:
        options["sas_token"] = sas
    elif settings.get("azure_client_secret"):
        for name in ("tenant_id", "client_id", "client_secret"):
            options[name] = settings.get(f"azure_{name}")
    return fs.AzureFileSystem(**options)

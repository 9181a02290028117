"""A catalogue of Iceberg tables: its settings, its tables, and errors that name them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from riot_ops.connectors.delta.location import REMEDIES
from riot_ops.core.errors import ConfigError, ConnectorError, MissingExtraError, RiotError, excerpt
from riot_ops.core.paths import local_path, scheme_of
from riot_ops.core.secret import Secret, names_secret

__all__ = ["TableCatalog", "check_catalog", "table_name"]

#: By a part of a message, what helps beside the remedies of the store.
OWN_REMEDIES = (
    (r"FileNotFoundError.*\.(parquet|avro|json)\b", "a file of it was removed or lost: restore it, or roll it back"),
    (r"URI missing", "define the catalogue in the configuration of pyiceberg, or give its settings as catalog"),
    (r"unable to open database file", "create the folder of the database, or check uri"),
)
DEFAULT_REMEDY = "check the settings of the catalogue, and whether it can be reached"


def check_catalog(catalog: Any) -> str | dict[str, str | Secret]:
    """Return the name or the settings of a catalogue; an error shows no value."""
    try:
        import pyiceberg.catalog  # noqa: F401
    except ImportError:
        raise MissingExtraError("an Iceberg table", "iceberg") from None
    if isinstance(catalog, str) and catalog:
        return catalog
    if not isinstance(catalog, Mapping):
        raise ConfigError(
            "catalog must be the name of a catalogue in the configuration of pyiceberg, or a mapping of its settings, "
            f"such as {{'type': 'sql', 'uri': 'sqlite:////lake/catalog.db', 'warehouse': '/lake'}}, got "
            f"{type(catalog).__name__}"
        )
    for name, value in catalog.items():
        if not isinstance(name, str) or not isinstance(value, str | Secret):
            raise ConfigError(
                f"catalog[{name!r}] must be a text, or a Secret for what must not be shown, got {type(value).__name__}"
            )
        if isinstance(value, str) and (names_secret(name) or _has_password(value)):
            raise ConfigError(f"catalog[{name!r}] may hold a secret: give Secret.env('NAME') or Secret('...')")
    return dict(catalog)


def table_name(name: Any, what: str) -> tuple[str, ...]:
    """Return the parts of the name of a table or a namespace.

    >>> table_name("bronze.readings", "table")
    ('bronze', 'readings')
    """
    parts = tuple(name.split(".")) if isinstance(name, str) else ()
    if not parts or not all(re.fullmatch(r"[\w-]+", part) for part in parts):
        raise ConfigError(f"{what} must be a name such as 'bronze.readings', got {name!r}")
    return parts


@dataclass(frozen=True)
class TableCatalog:
    """A catalogue by its name or its settings.

    Attributes
    ----------
    settings : str, or mapping of str to str or Secret
        The name of a catalogue in the configuration of pyiceberg, or its settings; their ``name``, by default
        ``default``, tells several catalogues in one database apart.
    """

    settings: str | Mapping[str, str | Secret]

    def load(self) -> Any:
        """Return the client of the catalogue."""
        from pyiceberg.catalog import load_catalog

        with self.translating_errors("the catalogue cannot be reached"):
            if isinstance(self.settings, str):
                return load_catalog(self.settings)
            plain = {n: v.reveal() if isinstance(v, Secret) else v for n, v in self.settings.items()}
            return load_catalog(plain.pop("name", "default"), **plain)

    @property
    def warehouse(self) -> Path | None:
        """The folder of the tables, if the settings name one of this machine."""
        found = None if isinstance(self.settings, str) else self.settings.get("warehouse")
        return local_path(found).absolute() if isinstance(found, str) and scheme_of(found) in ("", "file") else None

    @property
    def address(self) -> str:
        """The catalogue in words, without credentials."""
        if isinstance(self.settings, str):
            return self.settings
        uri = self.settings.get("uri", "")
        return _without_credentials(uri) if isinstance(uri, str) and uri else str(self.settings.get("type", "?"))

    @contextmanager
    def translating_errors(self, what: str) -> Iterator[None]:
        """Raise errors of libraries as one that names the catalogue, and what helps."""
        try:
            yield
        except RiotError:
            raise
        except Exception as error:  # of the client, of its database or of the store
            text = " ".join(str(error).split())
            if not isinstance(self.settings, str):
                for value in self.settings.values():
                    text = text.replace(value.reveal(), "***") if isinstance(value, Secret) else text
            text = f"{type(error).__name__}: {_without_credentials(text)}"
            remedy = next(
                (helps for pattern, helps in (*OWN_REMEDIES, *REMEDIES) if re.search(pattern, text)), DEFAULT_REMEDY
            )
            remedy = remedy.replace("storage_options", "the settings of the catalogue")
            raise ConnectorError(f"{what}: {excerpt(text)} (Iceberg catalogue {self.address}); {remedy}") from None


def _has_password(text: str) -> bool:
    """Whether an address has a password, in its login or its parameters.

    >>> _has_password("postgresql://me:pw@host/db"), _has_password("https://host/v1?token=t")
    (True, True)
    >>> _has_password("postgresql://me@host/db"), _has_password("sqlite:////lake/catalog.db?mode=rw")
    (False, False)
    """
    try:
        parts = urlsplit(text)
    except ValueError:  # a text that is no address
        return False
    return parts.password is not None or any(names_secret(n) for n, _ in parse_qsl(parts.query, keep_blank_values=True))


def _without_credentials(text: str) -> str:
    """Return a text without the logins and parameters of addresses in it.

    >>> _without_credentials("GET https://me:pw@host/v1?token=t failed")
    'GET https://host/v1 failed'
    """
    return re.sub(r"\?[^\s'\")]*", "", re.sub(r"//[^/@\s]*@", "//", text))

"""Tables of networks: the places of internet addresses."""

from __future__ import annotations

import csv
import functools
import ipaddress
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.errors import ConfigError, MissingExtraError
from riot_ops.core.paths import local_path
from riot_ops.kernels.text import ip_networks
from riot_ops.tables import table as limits
from riot_ops.tables.sample_networks import networks
from riot_ops.tables.table import NO_ROW, Column, Found, Table, file_version

__all__ = ["Networks"]

NAMES = ("country_code", "country", "city")
#: By address, its row in the columns of :data:`NAMES`.
Atlas = Callable[[pa.Array], tuple[npt.NDArray[np.int64], tuple[Column, ...]]]


@dataclass(frozen=True)
class Networks(Table):
    """The country and city of each internet address: the columns ``country_code``, ``country`` and ``city``.

    An unknown city is the empty text. A database looks up each distinct address of a batch once, in Python.

    Parameters
    ----------
    path : str or None, default None
        A file of networks: UTF-8 lines ``network,code,country,city`` such as ``192.0.2.0/24,BR,Brazil,Recife``
        (``#`` begins a comment; IP versions 4 and 6; of nested networks the smallest counts), at most 512 MB. A path
        that ends in ``.mmdb`` is a database in MaxMind's format [1], which needs ``riot-ops[geo]``; it has only
        global addresses. None: networks reserved for documentation and measurements, with arbitrary places, as used by
        the library's streams. Each process reads a file once per version.

    Examples
    --------
    >>> from riot_ops import tables
    >>> from riot_ops import tasks as t
    >>> live = t.Lookup(table=tables.Networks(), on="ip", columns="city").session()
    >>> live.push_many([{"ip": "203.0.113.9"}, {"ip": "10.0.0.1"}])
    [{'ip': '203.0.113.9', 'city': 'Wuhan'}, {'ip': '10.0.0.1', 'city': None}]

    References
    ----------
    .. [1] MaxMind, Inc., *MaxMind DB File Format Specification*, version 2.0.
    """

    path: str | None = None

    def validate(self) -> None:
        _ = self.atlas

    @property
    def atlas(self) -> Atlas:
        """The table in use."""
        if self.path is None:
            return _sample_atlas()
        if self.path.lower().endswith(".mmdb"):
            return _load_database(self.path, *file_version(self.path, None))
        return _load_text(self.path, *file_version(self.path, limits.MAX_BYTES))

    def check_keys(self, on: tuple[str, ...]) -> None:
        if len(on) != 1:
            raise ConfigError(f"lookup: on must be the one field with the address, got {on!r}")

    def names(self, on: tuple[str, ...]) -> tuple[str, ...]:
        return NAMES

    def look_up(
        self, batch: pa.RecordBatch, keys: Sequence[pa.Array], wanted: tuple[str, ...] | None, on: tuple[str, ...]
    ) -> Found:
        rows, columns = self.atlas(keys[0])
        return Found(rows, [columns[NAMES.index(name)] for name in (NAMES if wanted is None else wanted)])


def _atlas(rows: Iterable[tuple[str, str, str, str]]) -> Atlas:
    """Build an atlas from rows of network, country code, country and city."""
    numbers: dict[tuple[str, str, str], int] = {}
    table = ip_networks.Networks((row[0], numbers.setdefault(row[1:], len(numbers))) for row in rows)
    columns = _columns([*numbers])
    return lambda addresses: (table.find(addresses), columns)


def _columns(places: Sequence[tuple[str, str, str]]) -> tuple[Column, ...]:
    return tuple(Column(pa.array([place[i] for place in places], pa.string())) for i in range(len(NAMES)))


@functools.cache
def _sample_atlas() -> Atlas:
    return _atlas(networks())


@functools.lru_cache(maxsize=4)
def _load_text(path: str, modified: int, size: int) -> Atlas:
    rows = []
    table = csv.reader(())
    try:
        with local_path(path).open(encoding="utf-8-sig", newline="") as lines:
            table = csv.reader(lines)
            for cells in table:
                if not cells or cells[0].startswith("#"):
                    continue
                net, code, country, city = cells
                ipaddress.ip_network(net)
                rows.append((net, code, country, city))
    except OSError as error:
        raise ConfigError(f"lookup: the table {path} cannot be read: {error.strerror or error}") from None
    except (ValueError, csv.Error):
        raise ConfigError(
            f"lookup: line {table.line_num} of {path} must be network,code,country,city, and the network without "
            "host bits"
        ) from None
    if not rows:
        raise ConfigError(f"lookup: the table {path} has no network")
    return _atlas(rows)


@functools.lru_cache(maxsize=4)
def _load_database(path: str, modified: int, size: int) -> Atlas:
    try:
        import maxminddb
    except ImportError:
        raise MissingExtraError("a table of networks in an .mmdb file", "geo") from None
    try:
        reader = maxminddb.open_database(local_path(path))
    except (OSError, maxminddb.InvalidDatabaseError) as error:
        raise ConfigError(f"lookup: the table {path} cannot be read: {error}") from None

    def find(addresses: pa.Array) -> tuple[npt.NDArray[np.int64], tuple[Column, ...]]:
        text = addresses.dictionary_decode() if pa.types.is_dictionary(addresses.type) else addresses
        unique = text.dictionary_encode()
        found = [_find_place(reader, address) for address in unique.dictionary.to_pylist()]
        numbers = np.array([*(NO_ROW if one is None else i for i, one in enumerate(found)), NO_ROW], np.int64)
        places = unique.indices.cast(pa.int64()).fill_null(len(found)).to_numpy(zero_copy_only=False)
        return numbers[places], _columns([one or ("", "", "") for one in found])

    return find


def _find_place(reader: Any, address: str | bytes | None) -> tuple[str, str, str] | None:
    """Return the country code, country and city of an address; None if the database has no country for it."""
    try:
        given = ipaddress.ip_address(address.decode() if isinstance(address, bytes) else address or "")
        found: Any = (reader.get(given) if given.is_global else None) or {}
    except ValueError:  # not an address, or one of version 6 in a database of version 4
        return None
    country = found.get("country") or {}
    name = country.get("names", {}).get("en")
    if name is None:
        return None
    city = (found.get("city") or {}).get("names", {}).get("en", "")
    return country.get("iso_code", ""), name, city

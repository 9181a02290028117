"""Look-up of countries and cities of internet addresses."""

from __future__ import annotations

import csv
import functools
import ipaddress
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from riot_ops.core.dead_letters import DeadLetters
from riot_ops.core.errors import ConfigError, MissingExtraError
from riot_ops.core.order import carried_fields
from riot_ops.core.paths import local_path
from riot_ops.kernels.arrays.dictionaries import dictionary_codes
from riot_ops.kernels.arrays.rows import filter_rows, take_or_null
from riot_ops.kernels.text.ip_networks import NOWHERE, Networks
from riot_ops.task import Case, Requirement, StatelessTask, register, replace_column, with_field
from riot_ops.tasks.lookup.sample_networks import networks

__all__ = ["LookupGeo"]

#: Limit for the size of a text table in bytes.
MAX_BYTES = 512 << 20

DICTIONARY = pa.dictionary(pa.int32(), pa.string())


class Names(NamedTuple):
    """A name of each place: as text, and as a code into the distinct names."""

    texts: pa.Array
    codes: npt.NDArray[np.int32]
    known: pa.Array


#: Country code, country and city of each place. An atlas maps addresses to numbers of places, -1 for none.
Places = tuple[Names, Names, Names]
Atlas = Callable[[pa.Array], tuple[npt.NDArray[np.int64], Places]]


@register
@dataclass(frozen=True, kw_only=True)
class LookupGeo(StatelessTask):
    """Look up the country and city of each internet address.

    Parameters
    ----------
    field : str, default "ip"
        Text field with the address.
    table : str or None, default None
        Path of a table of networks: UTF-8 lines ``network,code,country,city`` such as
        ``192.0.2.0/24,BR,Brazil,Recife`` (``#`` begins a comment; IP versions 4 and 6; of nested networks the smallest
        counts), at most 512 MB. A path that ends in ``.mmdb`` is a database in MaxMind's format, which needs
        ``riot-ops[geo]``; it has only global addresses. None: networks reserved for documentation and measurements,
        with arbitrary places, as used by the library's streams.
    country, city : str, default "country" and "city"
        Fields for the names; an unknown city is the empty text.
    country_code : str or None, default None
        Field for the two-letter code of the country.
    missing : "drop", "null" or "reject", default "drop"
        What to do with a record whose address is invalid or in no network: drop it, set the names to null, or send it
        to the errors stream.
    keep : tuple of str or None, default None
        Fields of the input record to keep, besides those of its order and time; None: all.
    coded : bool, default False
        Whether the names form dictionary columns of Arrow: the same names, but steps that process each distinct value
        once, such as :class:`RunningCount` by name, are faster.

    Shapes and rates
    ----------------
    text[n] -> text[m] in each field, 1:0/1; O(log networks) time, no state. In a database, each distinct address is
    looked up once per batch, in Python. Each process reads the table once per version of the file.

    Missing values
    --------------
    A null address is in no network.

    Errors
    ------
    With ``missing="reject"``: ``unknown_address``. A table that cannot be read, or has a line without four cells or
    without a valid network, is a configuration error.

    References
    ----------
    .. [1] M. V. Bordin et al., *DSPBench*, IEEE Access 8, 2020: log processing and click analytics.
    .. [2] MaxMind, Inc., *MaxMind DB File Format Specification*, version 2.0.

    Examples
    --------
    >>> places = LookupGeo(country_code="iso").session()
    >>> places.push_many([{"ip": "203.0.113.9"}, {"ip": "10.0.0.1"}])
    [{'ip': '203.0.113.9', 'iso': 'CN', 'country': 'China', 'city': 'Wuhan'}]
    """

    code: ClassVar[str] = "GEO"
    category: ClassVar[str] = "Parse"
    pattern: ClassVar[str] = "Filter"
    selectivity: ClassVar[str] = "1:0/1"

    field: str = "ip"
    table: str | None = None
    country: str = "country"
    city: str = "city"
    country_code: str | None = None
    missing: Literal["drop", "null", "reject"] = "drop"
    keep: tuple[str, ...] | None = None
    coded: bool = False

    def validate(self) -> None:
        if len(set(self._names)) < len(self._names):
            raise ConfigError(f"country, city and country_code must be different fields, got {self._names}")
        _ = self.atlas

    @property
    def _names(self) -> list[str]:
        return [name for name in (self.country_code, self.country, self.city) if name is not None]

    @property
    def atlas(self) -> Atlas:
        """The table in use."""
        return _sample_atlas() if self.table is None else _stored_atlas(self.table)

    def requires(self) -> Mapping[str, Requirement]:
        return {self.field: "text", **{name: "any" for name in self.keep or () if name != self.field}}

    def writes(self) -> frozenset[str] | None:
        return frozenset(self._names)

    def output_schema(self, schema: pa.Schema) -> pa.Schema:
        self.check_input(schema)
        schema = pa.schema([schema.field(name) for name in self._kept_fields(schema.names)])
        for name in self._names:
            schema = with_field(schema, pa.field(name, DICTIONARY if self.coded else pa.string()))
        return schema

    def _kept_fields(self, names: list[str]) -> list[str]:
        return names if self.keep is None else list(dict.fromkeys([*carried_fields(names), *self.keep]))

    def apply(self, batch: pa.RecordBatch, dead: DeadLetters) -> pa.RecordBatch:
        column = batch.column(self.field)
        numbers, places = self.atlas(column)
        known = numbers != NOWHERE
        if not known.all() and self.missing == "reject":
            dead.reject(batch, ~known, "unknown_address", f"{self.field} is in no network of the table")
        batch = batch.select(self._kept_fields(batch.schema.names))
        if not known.all() and self.missing != "null":
            batch, numbers, known = filter_rows(batch, known), numbers[known], known[known]
        for name, names in zip((self.country_code, self.country, self.city), places, strict=True):
            if name is not None:
                column = (
                    _dictionary_column(names, numbers, known)
                    if self.coded
                    else take_or_null(names.texts, numbers, known)
                )
                batch = replace_column(batch, name, column)
        return batch

    @classmethod
    def cases(cls) -> Iterable[Case]:
        addresses = [
            "203.0.113.9",
            "198.18.0.1",
            "10.0.0.1",
            None,
            "",
            "192.0.2.256",
            "192.0.2.07",
            "ü",
            "::1",
            "198.18.15.1",
        ]
        batch = pa.RecordBatch.from_pydict({"seq": pa.array(range(10), pa.int64()), "ip": addresses})
        yield Case(cls(), batch)
        yield Case(cls(missing="null", country="ip", country_code="code"), batch, "null")
        yield Case(cls(missing="reject"), batch, "reject")
        yield Case(cls(missing="null", coded=True, keep=()), batch, "as numbers")


def _atlas(rows: Iterable[tuple[str, str, str, str]]) -> Atlas:
    """Build an atlas from rows of network, country code, country and city."""
    numbers: dict[tuple[str, str, str], int] = {}
    table = Networks((row[0], numbers.setdefault(row[1:], len(numbers))) for row in rows)
    codes, countries, cities = (_names([place[i] for place in numbers]) for i in range(3))
    return lambda column: (table.find(column), (codes, countries, cities))


def _names(names: list[str]) -> Names:
    texts = pa.array(names, pa.string())
    return Names(texts, *dictionary_codes(texts))


def _dictionary_column(names: Names, numbers: npt.NDArray[np.int64], known: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the names of places as a dictionary column, null where unknown."""
    if known.all():
        codes = pa.array(names.codes[numbers])
    else:  # also for an atlas without places
        codes = pa.array(np.append(names.codes, np.int32(0))[numbers], mask=~known)
    return pa.DictionaryArray.from_arrays(codes, names.known, safe=False)


@functools.cache
def _sample_atlas() -> Atlas:
    return _atlas(networks())


def _stored_atlas(path: str) -> Atlas:
    """Load the table in a file, once per process and version of the file."""
    try:
        status = local_path(path, "table").stat()
    except OSError as error:
        raise ConfigError(f"lookup_geo: the table {path} cannot be read: {error.strerror or error}") from None
    load = _load_database if path.lower().endswith(".mmdb") else _load_text
    return load(path, status.st_mtime_ns, status.st_size)


@functools.lru_cache(maxsize=4)
def _load_text(path: str, modified: int, size: int) -> Atlas:
    if size > MAX_BYTES:
        raise ConfigError(f"lookup_geo: the table {path} has {size} bytes, at most {MAX_BYTES} are allowed")
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
        raise ConfigError(f"lookup_geo: the table {path} cannot be read: {error.strerror or error}") from None
    except (ValueError, csv.Error):
        raise ConfigError(
            f"lookup_geo: line {table.line_num} of {path} must be network,code,country,city, and the network without "
            "host bits"
        ) from None
    if not rows:
        raise ConfigError(f"lookup_geo: the table {path} has no network")
    return _atlas(rows)


@functools.lru_cache(maxsize=4)
def _load_database(path: str, modified: int, size: int) -> Atlas:
    try:
        import maxminddb
    except ImportError:
        raise MissingExtraError("lookup_geo with an .mmdb file", "geo") from None
    try:
        reader = maxminddb.open_database(local_path(path))
    except (OSError, maxminddb.InvalidDatabaseError) as error:
        raise ConfigError(f"lookup_geo: the table {path} cannot be read: {error}") from None

    def find(column: pa.Array) -> tuple[npt.NDArray[np.int64], Places]:
        text = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        unique = text.dictionary_encode()
        found = [_find_place(reader, address) for address in unique.dictionary.to_pylist()]
        numbers = np.append([NOWHERE if one is None else i for i, one in enumerate(found)], NOWHERE)
        kept = [one or ("", "", "") for one in found]
        codes, countries, cities = (_names([one[i] for one in kept]) for i in range(3))
        places = unique.indices.cast(pa.int64()).fill_null(len(found)).to_numpy(zero_copy_only=False)
        return numbers.astype(np.int64)[places], (codes, countries, cities)

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

"""Formats of files of records: CSV, Parquet and JSON lines, read batch by batch."""

from __future__ import annotations

import codecs
import io
import itertools
import logging
from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.core.castable import matches, valid_utf8
from riot_ops.core.casting import Problem, cast_or_null
from riot_ops.core.errors import ConnectorError, read_error, value_text
from riot_ops.core.file_paths import input_stream
from riot_ops.core.parquet_file import open_parquet
from riot_ops.core.python_values import infer_type
from riot_ops.ingest.notation import UTC_MICROS, Notation
from riot_ops.ingest.step import REJECTED, from_records, mark_rejected
from riot_ops.ingest.tables import MAX_BATCH_RECORDS, check_names
from riot_ops.kernels.text.encodings import is_utf8_codec
from riot_ops.kernels.text.strings import non_utf8

__all__ = ["CSVFormat", "FileFormat", "JSONLinesFormat", "ParquetFormat", "naming_file"]

_log = logging.getLogger("riot_ops")

BLOCK_BYTES = 4 << 20
#: Maximum number of bytes of a row of CSV; blocks grow up to it.
MAX_ROW_BYTES = 1 << 30
#: Maximum number of rows of a batch, and approximate maximum of its bytes.
BATCH_ROWS, BATCH_BYTES = 65_536, 32 << 20
#: Maximum number of JSON lines from which the names of fields are inferred, up to the bytes of a batch.
INFERENCE_LINES = 1000
#: The types that the texts of CSV may spell, and the number of texts that are looked at first.
INFERRED, INFERENCE_SAMPLE = (pa.int64(), pa.float64(), UTC_MICROS, pa.bool_()), 100
types = pa.types
#: The record of a line, the problem if it has none, and the text of the line.
_Line = tuple[Mapping[str, Any], Problem | None, str]


@contextmanager
def naming_file(path: str) -> Iterator[None]:
    """Convert errors of Arrow and the system to a :class:`ConnectorError` that names the file."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeError) as error:
        if isinstance(error, ConnectorError):
            raise
        raise read_error(path, error) from None


class FileFormat(ABC):
    """A format of files; one instance reads any number of files."""

    @abstractmethod
    def schema(self, path: str) -> pa.Schema:
        """Return the fields of a file; CSV, which declares no types, is read for them."""

    def fields(self, path: str) -> pa.Schema:
        """Return the fields of a file, as texts where it declares no types."""
        return self.schema(path)

    @abstractmethod
    def project(self, path: str, wanted: pa.Schema) -> FileFormat:
        """Return the format for a dataflow that reads the fields ``wanted``."""

    @abstractmethod
    def batches(self, path: str, row: int) -> Iterator[pa.RecordBatch]:
        """Read the batches of a file from a row on; the row is 0 if the format cannot count rows."""

    def count(self, path: str) -> int | None:
        """Return the number of rows of a file; None if that is unknown before reading it."""
        return None


@dataclass(frozen=True)
class ParquetFormat(FileFormat):
    """Parquet files; only the requested columns are read."""

    wanted: tuple[str, ...] | None = None

    def schema(self, path: str) -> pa.Schema:
        with open_parquet(path) as file:
            found: pa.Schema = file.schema_arrow
            return found

    def project(self, path: str, wanted: pa.Schema) -> FileFormat:
        return replace(self, wanted=tuple(wanted.names))

    def count(self, path: str) -> int | None:
        with open_parquet(path) as file:
            return int(file.metadata.num_rows)

    def batches(self, path: str, row: int) -> Iterator[pa.RecordBatch]:
        with open_parquet(path) as file:
            groups = list(range(file.metadata.num_row_groups))
            while groups and (rows := file.metadata.row_group(groups[0]).num_rows) <= row:
                row -= rows
                del groups[0]
            row_groups = [file.metadata.row_group(group) for group in groups]
            row_bytes = max((group.total_byte_size // max(group.num_rows, 1) for group in row_groups), default=0)
            rows = max(1, min(BATCH_ROWS, BATCH_BYTES // max(row_bytes, 1)))
            for batch in file.iter_batches(rows, groups, self.wanted):
                skipped = min(row, batch.num_rows)
                row -= skipped
                yield batch.slice(skipped)


class _Converted(io.RawIOBase, ABC):
    """A file whose content is converted block by block."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._bytes = b""

    @abstractmethod
    def _convert(self, raw: bytes, end: bool) -> bytes:
        """Convert a block; after the last one there is an empty one at the end."""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        end = False
        while not end and (size < 0 or len(self._bytes) < size):
            raw = self._file.read(BLOCK_BYTES)
            end = not raw
            self._bytes += self._convert(raw, end)
        size = len(self._bytes) if size < 0 else size
        given, self._bytes = self._bytes[:size], self._bytes[size:]
        return given


class _Recoder(_Converted):
    """A file in another encoding, read as UTF-8; bytes that are not in it become bytes that are no UTF-8."""

    def __init__(self, file: Any, encoding: str) -> None:
        super().__init__(file)
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")

    def _convert(self, raw: bytes, end: bool) -> bytes:
        return self._decoder.decode(raw, end).encode("utf-8", "surrogatepass")


class _Rows(_Converted):
    """A file of UTF-8 without its first lines and without lines of comment."""

    def __init__(self, file: Any, skip: int, comment: str | None) -> None:
        super().__init__(file)
        self._skip = skip
        self._comment = None if comment is None else comment.encode()
        self._quoted = False  # whether a quoted cell is open
        self._rest = b""
        self._first, self._returns = True, False

    def _convert(self, raw: bytes, end: bool) -> bytes:
        if self._first:
            raw, self._first = raw.removeprefix(BOM_UTF8), False
            self._returns = b"\r" in raw and b"\n" not in raw
        if self._returns:  # the only line breaks
            raw = raw.replace(b"\r", b"\n")
        lines = (self._rest + raw).split(b"\n")
        self._rest = b"" if end else lines.pop()
        kept = [line for line in lines if self._is_kept(line)]
        return b"\n".join(kept) + (b"\n" if kept and not end else b"")

    def _is_kept(self, line: bytes) -> bool:
        if self._skip:
            self._skip -= 1
            return False
        if self._comment is not None and not self._quoted and line.startswith(self._comment):
            return False
        self._quoted ^= bool(line.count(b'"') % 2)
        return True


@dataclass(frozen=True)
class CSVFormat(FileFormat):
    """CSV files, read as texts; the ingest step casts them to the declared types, unless the notation concerns them."""

    header: tuple[str, ...] | None
    delimiter: str
    null_values: tuple[str, ...]
    encoding: str
    notation: Notation = field(default_factory=Notation)
    quoted_nulls: bool = False
    skip_rows: int = 0
    comment: str | None = None
    wanted: pa.Schema | None = None

    def fields(self, path: str) -> pa.Schema:
        return pa.schema([pa.field(name, self._dtype(name)) for name in self._names(path)])

    def schema(self, path: str) -> pa.Schema:
        if self.wanted is not None:
            return self.fields(path)
        names = self._names(path)
        rows = next(self._texts(path), None)
        dtypes = [pa.string() if rows is None else self._inferred(rows.column(i)) for i in range(len(names))]
        fields = list(map(pa.field, names, dtypes))
        found = ", ".join(f"{one.name} {one.type}" for one in fields)
        _log.info("%s: types inferred from %d rows: %s", path, 0 if rows is None else rows.num_rows, found)
        return pa.schema(fields)

    def _inferred(self, text: pa.Array) -> pa.DataType:
        """Return the type that all texts spell, or text; a number with leading zeros is text."""
        if text.null_count == len(text):
            return pa.string()
        text = text.drop_null()
        first = text.slice(0, INFERENCE_SAMPLE)  # most columns show in a few rows what they are not
        known = (dtype for dtype in INFERRED if self._spells(first, dtype) and self._spells(text, dtype))
        return next(known, pa.string())

    def _spells(self, text: pa.Array, dtype: pa.DataType) -> bool:
        """Whether all texts spell values of a type."""
        if types.is_boolean(dtype):
            return bool(valid_utf8(text).all() and matches(text, "(?i)true|false").all())
        concerned = self.notation.concerns(dtype)
        found = self.notation.convert(text, dtype)[0] if concerned else cast_or_null(text, dtype)
        if found.null_count or types.is_timestamp(dtype):
            return not found.null_count
        return not pc.any(pc.match_substring_regex(text, r"^\s*[+-]?0\d")).as_py()

    def _dtype(self, name: str) -> pa.DataType:
        """Return the type in which a column is delivered."""
        place = -1 if self.wanted is None else self.wanted.get_field_index(name)
        dtype = pa.string() if place < 0 or self.wanted is None else self.wanted.field(place).type
        return dtype if self.notation.concerns(dtype) else pa.string()

    def _names(self, path: str) -> list[str]:
        block = BLOCK_BYTES
        while True:
            try:
                with self._open(path, {}, block) as reader:
                    return list(reader.schema.names)
            except pa.ArrowInvalid as error:
                block = _larger_block(block, error)

    def project(self, path: str, wanted: pa.Schema) -> FileFormat:
        names = set(self._names(path))
        return replace(self, wanted=pa.schema([f for f in wanted if f.name in names]))

    def batches(self, path: str, row: int) -> Iterator[pa.RecordBatch]:
        for batch in self._texts(path):
            problems: dict[int, Problem] = {}
            columns = []
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                dtype = self._dtype(name)
                if name != REJECTED and not is_utf8_codec(self.encoding):
                    for i, problem in _check_encoding(column, self.encoding).items():
                        problems.setdefault(i, problem._replace(text=f"{name} {problem.text}"))
                if name != REJECTED and not dtype.equals(pa.string()):
                    column, wrong = self.notation.convert(column, dtype)
                    for i, problem in wrong.items():
                        problems.setdefault(i, problem._replace(text=f"{name} {problem.text}"))
                columns.append(column)
            marked = mark_rejected(batch, problems)
            columns += marked.columns[len(columns) :]
            if REJECTED in batch.schema.names:
                columns[batch.schema.get_field_index(REJECTED)] = marked.column(REJECTED)
            yield pa.RecordBatch.from_arrays(columns, names=marked.schema.names)

    def _texts(self, path: str) -> Iterator[pa.RecordBatch]:
        names = self._names(path)
        block, read = BLOCK_BYTES, 0
        while True:
            try:
                known = read
                for batch in self._parsed(path, names, block):
                    skipped = min(known, batch.num_rows)  # read with smaller blocks
                    known -= skipped
                    if skipped < batch.num_rows:
                        read += batch.num_rows - skipped
                        yield batch.slice(skipped)
                return
            except pa.ArrowInvalid as error:
                block = _larger_block(block, error)

    def _parsed(self, path: str, names: list[str], block: int) -> Iterator[pa.RecordBatch]:
        """Parse a file in blocks; a row must be smaller than a block."""
        bad: dict[int, Any] = {}
        # Arrow numbers rows from 1, including the header
        number = first = 1 if self.header is not None else 2
        with self._open(path, bad, block, names) as reader:
            for batch in reader:
                complete = _insert_bad_rows(batch, number, bad)
                number += complete.num_rows
                yield complete
            rest = _insert_bad_rows(batch.slice(0, 0) if number > first else _empty(reader.schema), number, bad)
            if rest.num_rows:
                yield rest

    @contextmanager
    def _open(self, path: str, bad: dict[int, Any], block: int, names: list[str] | None = None) -> Iterator[Any]:
        from pyarrow import csv

        def keep(row: Any) -> str:
            bad[row.number] = row
            return "skip"

        with input_stream(path) as opened:
            file: Any = opened if is_utf8_codec(self.encoding) else _Recoder(opened, self.encoding)
            if self.skip_rows or self.comment is not None:
                file = _Rows(file, self.skip_rows, self.comment)
            yield csv.open_csv(
                file if file is opened else pa.PythonFile(file, mode="r"),
                # Arrow numbers rows only without threads
                csv.ReadOptions(use_threads=False, block_size=block, column_names=self.header),
                csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=keep),
                csv.ConvertOptions(
                    column_types=None if names is None else dict.fromkeys(names, pa.string()),
                    include_columns=None if names is None or self.wanted is None else self.wanted.names,
                    check_utf8=False,  # the ingest step checks it
                    null_values=self.null_values,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=self.quoted_nulls,
                ),
            )


def _larger_block(block: int, error: pa.ArrowInvalid) -> int:
    """Return the next size of blocks after one that a row did not fit into; other errors are raised."""
    header = "Empty CSV file or block" in str(error)  # a header that does not fit, or an empty file
    if not header and "straddling object" not in str(error):
        raise error
    if header and block >= MAX_ROW_BYTES:
        raise error
    if block >= MAX_ROW_BYTES:
        raise pa.ArrowInvalid(f"a row has more than {MAX_ROW_BYTES >> 20} MiB, or lacks a closing quote") from None
    return min(4 * block, MAX_ROW_BYTES)


def _check_encoding(column: pa.Array, encoding: str) -> dict[int, Problem]:
    """Find the values that could not be decoded, in which a :class:`_Recoder` leaves surrogates."""
    raw = column.cast(pa.large_binary())
    found = np.flatnonzero(non_utf8(raw)).tolist()
    originals = (_encode(raw[i].as_py().decode("utf-8", "surrogatepass"), encoding) for i in found)
    texts = (f"= {value_text(original)} is not in the encoding {encoding}" for original in originals)
    return {i: Problem("invalid_encoding", text) for i, text in zip(found, texts, strict=True)}


def _encode(text: str, encoding: str) -> bytes | str:
    """Return the bytes from which a text was decoded; the text if its codec cannot encode what it decodes."""
    try:
        return text.encode(encoding, "surrogateescape")
    except UnicodeError:
        return text


def _empty(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def _insert_bad_rows(batch: pa.RecordBatch, number: int, bad: dict[int, Any]) -> pa.RecordBatch:
    """Insert bad rows at their positions, marked as rejected, into a batch that begins with row ``number``."""
    size = batch.num_rows
    found = []
    for row in sorted(bad):
        if row > number + size:
            break
        found.append(bad.pop(row))
        size += 1
    if not found:
        return batch
    places = np.array([row.number - number for row in found])
    good = np.ones(size, np.bool_)
    good[places] = False
    rows = np.zeros(size, np.int64)
    rows[good] = np.arange(batch.num_rows)
    if batch.num_rows:
        batch = batch.take(pa.array(rows, mask=~good))
    else:
        batch = pa.RecordBatch.from_arrays([pa.nulls(size, f.type) for f in batch.schema], schema=batch.schema)
    problems = {
        int(place): Problem("malformed", f"{row.actual_columns} cells, there are {row.expected_columns} columns")
        for place, row in zip(places, found, strict=True)
    }
    return mark_rejected(batch, problems, {int(p): row.text for p, row in zip(places, found, strict=True)})


@dataclass(frozen=True)
class JSONLinesFormat(FileFormat):
    """Files with a JSON object per line; empty lines are skipped."""

    wanted: pa.Schema | None = None

    def schema(self, path: str) -> pa.Schema:
        lines = _group(_lines(path), INFERENCE_LINES, BATCH_BYTES)
        records = [record for record, problem, _ in lines if problem is None]
        if self.wanted is None:
            names = dict.fromkeys(str(name) for record in records for name in record)
            return pa.schema([(name, infer_type([record.get(name) for record in records])) for name in names])
        if records:
            check_names(path, [str(name) for record in records for name in record], self.wanted)
        return self._fields(records)

    def project(self, path: str, wanted: pa.Schema) -> FileFormat:
        return replace(self, wanted=wanted)

    def batches(self, path: str, row: int) -> Iterator[pa.RecordBatch]:
        schema = self.schema(path)
        lines = _lines(path)
        while group := _group(lines):
            unread = {i: (problem, text) for i, (_, problem, text) in enumerate(group) if problem is not None}
            yield from_records([record for record, _, _ in group], schema, unread)

    def _fields(self, records: list[Mapping[str, Any]]) -> pa.Schema:
        assert self.wanted is not None
        numbered = "seq" not in self.wanted.names or any("seq" in record for record in records)
        return self.wanted if numbered else self.wanted.remove(self.wanted.get_field_index("seq"))


def _group(lines: Iterator[_Line], rows: int = MAX_BATCH_RECORDS, size: int = BLOCK_BYTES) -> list[_Line]:
    """Read the next lines, up to a number of rows and about ``size`` bytes."""
    group = list[_Line]()
    for line in itertools.islice(lines, rows):
        group.append(line)
        size -= len(line[2])
        if size <= 0:
            break
    return group


def _lines(path: str) -> Iterator[_Line]:
    with input_stream(path) as file, io.BufferedReader(file) as lines:
        for number, line in enumerate(lines):
            line = line if number else line.removeprefix(BOM_UTF8)
            if not line.strip():
                continue
            text = line.decode("utf-8", "backslashreplace").rstrip("\r\n")
            try:
                record = msgspec.json.decode(line)
            except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
                yield {}, Problem("malformed", f"not JSON: {error}"), text
                continue
            if isinstance(record, dict):
                yield record, None, text
            else:
                yield {}, Problem("malformed", f"not a JSON object: {value_text(record)}"), text

"""Formats of files of records: CSV, Parquet and JSON lines, read batch by batch."""

from __future__ import annotations

import codecs
import io
import itertools
from abc import ABC, abstractmethod
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from riot_ops.core.casting import Problem, infer_type
from riot_ops.core.errors import ConnectorError, value_text
from riot_ops.core.parquet_file import open_parquet
from riot_ops.ingest.step import from_records, mark_rejected
from riot_ops.ingest.tables import MAX_BATCH_RECORDS, check_names
from riot_ops.kernels.text.encodings import is_utf8_codec

__all__ = ["CSVFormat", "FileFormat", "JSONLinesFormat", "ParquetFormat", "naming_file"]

BLOCK_BYTES = 4 << 20
#: Maximum number of bytes of a row of CSV; blocks grow up to it.
MAX_ROW_BYTES = 1 << 30
#: Maximum number of rows of a batch, and approximate maximum of its bytes.
BATCH_ROWS, BATCH_BYTES = 65_536, 32 << 20
#: Maximum number of JSON lines from which the names of fields are inferred, up to the bytes of a batch.
INFERENCE_LINES = 1000
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
        raise ConnectorError(f"cannot read {path}: {error}") from None


class FileFormat(ABC):
    """A format of files; one instance reads any number of files."""

    @abstractmethod
    def schema(self, path: str) -> pa.Schema:
        """The fields of a file."""

    @abstractmethod
    def project(self, path: str, wanted: pa.Schema) -> FileFormat:
        """Return the format for a dataflow that reads the fields ``wanted``."""

    @abstractmethod
    def batches(self, path: str, row: int) -> Iterator[pa.RecordBatch]:
        """Read the batches of a file from a row on; the row is 0 if the format cannot count rows."""

    def count(self, path: str) -> int | None:
        """The number of rows of a file; None if that is unknown before reading it."""
        return None


@dataclass(frozen=True)
class ParquetFormat(FileFormat):
    """Parquet files; only the requested columns are read."""

    wanted: tuple[str, ...] | None = None

    def schema(self, path: str) -> pa.Schema:
        from pyarrow import parquet

        return parquet.read_schema(path)

    def project(self, path: str, wanted: pa.Schema) -> FileFormat:
        return replace(self, wanted=tuple(wanted.names))

    def count(self, path: str) -> int | None:
        from pyarrow import parquet

        return int(parquet.read_metadata(path).num_rows)

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


class _Recoder(io.RawIOBase):
    """A file in another encoding, read as UTF-8; bytes that are not in it become bytes that are no UTF-8."""

    def __init__(self, file: Any, encoding: str) -> None:
        self._file = file
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogateescape")
        self._bytes = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        end = False
        while not end and (size < 0 or len(self._bytes) < size):
            raw = self._file.read(BLOCK_BYTES)
            end = not raw
            self._bytes += self._decoder.decode(raw, end).encode("utf-8", "surrogatepass")
        size = len(self._bytes) if size < 0 else size
        given, self._bytes = self._bytes[:size], self._bytes[size:]
        return given


@dataclass(frozen=True)
class CSVFormat(FileFormat):
    """CSV files, read as texts; the ingest step casts them to the declared types."""

    columns: tuple[str, ...] | None
    delimiter: str
    missing: tuple[str, ...]
    encoding: str
    wanted: tuple[str, ...] | None = None

    def schema(self, path: str) -> pa.Schema:
        block = BLOCK_BYTES
        while True:
            try:
                with self._open(path, {}, block) as reader:
                    return pa.schema([pa.field(name, pa.string()) for name in reader.schema.names])
            except pa.ArrowInvalid as error:
                block = _larger_block(block, error)

    def project(self, path: str, wanted: pa.Schema) -> FileFormat:
        names = set(self.schema(path).names)
        return replace(self, wanted=tuple(n for n in wanted.names if n in names))

    def batches(self, path: str, row: int) -> Iterator[pa.RecordBatch]:
        names = self.schema(path).names
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
        number = first = 1 if self.columns is not None else 2
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

        with pa.input_stream(path, compression="detect") as file:
            yield csv.open_csv(
                file if is_utf8_codec(self.encoding) else pa.PythonFile(_Recoder(file, self.encoding), mode="r"),
                # Arrow numbers rows only without threads
                csv.ReadOptions(use_threads=False, block_size=block, column_names=self.columns),
                csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True, invalid_row_handler=keep),
                csv.ConvertOptions(
                    column_types=None if names is None else dict.fromkeys(names, pa.string()),
                    include_columns=None if names is None else self.wanted,
                    check_utf8=False,  # the ingest step checks it
                    null_values=self.missing,
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )


def _larger_block(block: int, error: pa.ArrowInvalid) -> int:
    """The next size of blocks after one that a row did not fit into; other errors are raised."""
    if "straddling object" not in str(error):
        raise error
    if block >= MAX_ROW_BYTES:
        raise pa.ArrowInvalid(f"a row has more than {MAX_ROW_BYTES >> 20} MiB, or lacks a closing quote") from None
    return min(4 * block, MAX_ROW_BYTES)


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
    with pa.input_stream(path, compression="detect") as file, io.BufferedReader(file) as lines:
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

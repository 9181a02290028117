"""Sinks that write text: CSV and JSON lines."""

from __future__ import annotations

import base64
import io
import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
from pyarrow import types

from riot_ops.core.errors import ConfigError, read_error
from riot_ops.core.file_sink import FileSink, ParquetSink, TableWriter
from riot_ops.core.json_rows import json_lines, json_texts
from riot_ops.core.python_values import from_values
from riot_ops.core.secret import Secret
from riot_ops.core.storage import Address

__all__ = ["FILE_SINKS", "CSVSink", "JSONLinesSink"]


class CSVSink(FileSink):
    """Writes ``<folder>/<stream>/part-<batch>-<partition>.csv``, effectively once (see :class:`FileSink`).

    Each file is UTF-8 with a header; lines end in a line feed. A missing value is an empty cell, an empty text is
    ``""``. Numbers keep all digits. Times are ISO 8601 with as many digits as their type has, and ``Z`` where they
    have a time zone; durations are whole numbers of their unit. Lists and structs are JSON.

    Parameters
    ----------
    folder : str or Path
        A path, ``file:`` URI, or address such as ``s3://bucket/folder``; created if missing.
    delimiter : str, default ","
        One ASCII character between cells, neither a quote nor the end of a line.
    roll_bytes : int, optional
        Size in bytes from which the waiting files of a stream are rolled.
    roll_interval : timedelta or str, optional
        Roll them when the oldest has waited for so long, such as ``"1h"``.
    storage_options : mapping of str to str or Secret, optional
        Settings of an object store; by default those of the environment.

    Raises
    ------
    ConfigError
        When a dataflow starts, for a stream with a column of bytes, for which CSV has no form.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> schema = pa.schema([("room", pa.string()), ("value", pa.float64())])
    >>> sink = CSVSink(folder.name, delimiter=";").bind({"out": schema})
    >>> writer = sink.writer(0, 0)
    >>> writer.write("out", pa.RecordBatch.from_pydict({"room": ["a;b", None], "value": [21.5, 22.0]}))
    >>> sink.commit(0, [writer.finish()])
    >>> print(Path(folder.name, "out", "part-000000-00000.csv").read_text())
    "room";"value"
    "a;b";21.5
    ;22
    <BLANKLINE>
    >>> sink.table("out").to_pylist()
    [{'room': 'a;b', 'value': 21.5}, {'room': None, 'value': 22.0}]
    >>> folder.cleanup()
    """

    suffix = "csv"

    def __init__(
        self,
        folder: str | Path | Address,
        *,
        delimiter: str = ",",
        roll_bytes: int | None = None,
        roll_interval: timedelta | str | None = None,
        storage_options: Mapping[str, str | Secret] | None = None,
    ) -> None:
        super().__init__(folder, roll_bytes=roll_bytes, roll_interval=roll_interval, storage_options=storage_options)
        if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n' or not delimiter.isascii():
            raise ConfigError(
                f"delimiter must be one ASCII character other than a quote and a line end, got {delimiter!r}"
            )
        self.delimiter = delimiter

    def bind(self, schemas: Mapping[str, pa.Schema]) -> FileSink:
        for stream, schema in schemas.items():
            for field in schema:
                if _is_binary(field.type):
                    raise ConfigError(
                        f"column {field.name!r} of stream {stream!r} has type {field.type}, for which CSV has no form: "
                        "drop it, make text of it, or use a JSONLinesSink or ParquetSink"
                    )
        return super().bind(schemas)

    def open_file(self, path: Path | BinaryIO, schema: pa.Schema) -> TableWriter:
        return _CSVWriter(path, schema, self.delimiter)

    def read_file(self, path: Path | Address, stream: str) -> pa.Table:
        from pyarrow import csv

        schema = (self.schemas or {}).get(stream)
        texts = {} if schema is None else {f.name: _cell_type(f.type) for f in schema}
        try:
            table = csv.read_csv(
                path.open() if isinstance(path, Address) else path,
                parse_options=csv.ParseOptions(
                    delimiter=self.delimiter, newlines_in_values=True, ignore_empty_lines=False
                ),
                convert_options=csv.ConvertOptions(
                    column_types=texts, null_values=[""], strings_can_be_null=True, quoted_strings_can_be_null=False
                ),
            )
            return table if schema is None else _typed(table, schema)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise read_error(path, error) from error

    def form_of(self, path: Path | Address) -> object:
        try:
            with _opened(path, "rb") as file:
                return _read_header(file)
        except OSError as error:
            raise read_error(path, error) from error

    def join_files(self, parts: Sequence[Path | Address | BinaryIO], into: Path | BinaryIO) -> None:
        with _opened(into, "wb") as joined:
            header = None
            for part in parts:
                with _opened(part, "rb") as file:
                    own = _read_header(file)
                    if header is None:
                        joined.write(own)
                        header = own
                    elif own != header:
                        raise pa.ArrowInvalid(f"{part} has other columns")
                    shutil.copyfileobj(file, joined)


class JSONLinesSink(FileSink):
    """Writes ``<folder>/<stream>/part-<batch>-<partition>.jsonl``, effectively once (see :class:`FileSink`).

    Each line is a JSON object with all columns, missing values as ``null``. Numbers keep all digits, decimals too. JSON
    has no NaN and no infinity: they are written as ``null``. Times are ISO 8601, durations whole numbers of their unit,
    bytes are Base64.

    Parameters
    ----------
    folder : str or Path
        A path, ``file:`` URI, or address such as ``s3://bucket/folder``; created if missing.
    roll_bytes : int, optional
        Size in bytes from which the waiting files of a stream are rolled.
    roll_interval : timedelta or str, optional
        Roll them when the oldest has waited for so long, such as ``"1h"``.
    storage_options : mapping of str to str or Secret, optional
        Settings of an object store; by default those of the environment.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> sink = JSONLinesSink(folder.name).bind({"out": pa.schema([("room", pa.string()), ("value", pa.float64())])})
    >>> writer = sink.writer(0, 0)
    >>> writer.write("out", pa.RecordBatch.from_pydict({"room": ["küche", None], "value": [21.5, 22.0]}))
    >>> sink.commit(0, [writer.finish()])
    >>> print(Path(folder.name, "out", "part-000000-00000.jsonl").read_text())
    {"room":"küche","value":21.5}
    {"room":null,"value":22.0}
    <BLANKLINE>
    >>> sink.table("out").to_pylist()
    [{'room': 'küche', 'value': 21.5}, {'room': None, 'value': 22.0}]
    >>> folder.cleanup()
    """

    suffix = "jsonl"

    def open_file(self, path: Path | BinaryIO, schema: pa.Schema) -> TableWriter:
        return _JSONLinesWriter(path, schema)

    def read_file(self, path: Path | Address, stream: str) -> pa.Table:
        schema = (self.schemas or {}).get(stream)
        try:
            if isinstance(path, Address):
                lines = io.BytesIO(path.open().read()).readlines()
            else:
                with path.open("rb") as file:
                    lines = list(file)
            rows = [json.loads(line) for line in lines]
            if schema is None:
                return pa.Table.from_pylist(rows)
            exact = [_decoded(line, schema) for line in lines] if "decimal" in str(schema) else rows
            columns = [
                _from_json([row[f.name] for row in (exact if "decimal" in str(f.type) else rows)], f.type)
                for f in schema
            ]
            return pa.table(columns, schema=schema)
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
            raise read_error(path, error) from error

    def join_files(self, parts: Sequence[Path | Address | BinaryIO], into: Path | BinaryIO) -> None:
        with _opened(into, "wb") as joined:
            for part in parts:
                with _opened(part, "rb") as file:
                    shutil.copyfileobj(file, joined)


#: By format, what writes it.
FILE_SINKS: dict[str, type[FileSink]] = {"parquet": ParquetSink, "csv": CSVSink, "jsonl": JSONLinesSink}


class _CSVWriter:
    def __init__(self, path: Path | BinaryIO, schema: pa.Schema, delimiter: str) -> None:
        from pyarrow import csv

        self.schema = schema
        cells = pa.schema([pa.field(f.name, pa.string() if types.is_nested(f.type) else f.type) for f in schema])
        self._file = csv.CSVWriter(path, cells, write_options=csv.WriteOptions(delimiter=delimiter))

    def write_table(self, table: pa.Table) -> None:
        columns = [json_texts(c) if types.is_nested(c.type) else c for c in table.columns]
        self._file.write_table(pa.table(columns, names=table.column_names))

    def close(self) -> None:
        self._file.close()


class _JSONLinesWriter:
    def __init__(self, path: Path | BinaryIO, schema: pa.Schema) -> None:
        self.schema = schema
        self._own = isinstance(path, Path)
        self._file: BinaryIO = path.open("wb") if isinstance(path, Path) else path

    def write_table(self, table: pa.Table) -> None:
        self._file.write(json_lines(table))

    def close(self) -> None:
        if self._own:
            self._file.close()


@contextmanager
def _opened(place: Path | Address | BinaryIO, mode: str) -> Iterator[Any]:
    """Open a file; one that is open stays so."""
    if isinstance(place, (Path, Address)):
        with place.open(mode) if isinstance(place, Path) else io.BufferedReader(place.open()) as file:
            yield file
    else:
        yield place


def _read_header(file: Any) -> bytes:
    """Read the names of the columns, which may contain ends of lines."""
    header = bytes(file.readline())
    while header.count(b'"') % 2 and (line := file.readline()):
        header += line
    return header


def _is_binary(dtype: pa.DataType) -> bool:
    return bool(types.is_binary(dtype) or types.is_large_binary(dtype) or types.is_fixed_size_binary(dtype))


def _from_json(values: list[Any], dtype: pa.DataType) -> pa.Array:
    """Make a column of decoded JSON values."""
    if types.is_duration(dtype):
        return pa.array(values, pa.int64()).cast(dtype)
    if types.is_time(dtype):
        # Arrow reads times of day only as part of a date
        dated = [None if value is None else f"1970-01-01 {value}" for value in values]
        return pa.array(dated, pa.string()).cast(pa.timestamp(dtype.unit)).cast(dtype)
    if _is_binary(dtype):
        return pa.array([None if value is None else base64.b64decode(value) for value in values], dtype)
    column, problems = from_values(values, dtype)
    if problems:
        row, problem = next(iter(problems.items()))
        raise ValueError(f"line {row + 1}: a value {problem.text}")
    return column


def _cell_type(dtype: pa.DataType) -> pa.DataType:
    """Return the type as which a cell of a CSV file is read."""
    return pa.string() if types.is_nested(dtype) else pa.int64() if types.is_duration(dtype) else dtype


def _typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Make columns of their declared types of the cells of a CSV file."""
    columns = []
    for field in schema:
        column = table.column(field.name)
        if types.is_nested(field.type):
            decoded = [None if text is None else _decoded(text, field.type) for text in column.to_pylist()]
            column = _from_json(decoded, field.type)
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=schema)


def _decoded(text: str | bytes, dtype: pa.DataType | pa.Schema) -> Any:
    """Decode JSON; numbers keep their digits where decimals are expected."""
    return json.loads(text, parse_float=Decimal if "decimal" in str(dtype) else None)

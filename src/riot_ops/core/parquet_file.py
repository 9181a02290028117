"""Parquet files with a checksum of each page, written and verified."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from riot_ops.core.errors import ConnectorError, read_error
from riot_ops.core.file_paths import is_remote, open_binary
from riot_ops.core.storage import Address

__all__ = ["open_parquet", "parquet_writer", "read_parquet"]


def parquet_writer(path: Path | BinaryIO, schema: pa.Schema, compression: str) -> Any:
    """Open a writer of a Parquet file whose pages carry checksums."""
    from pyarrow import parquet  # loads the file systems of Arrow

    # numbers seldom repeat: trying a dictionary for them costs more than all other work
    texts = [f.name for f in schema if pa.types.is_string(f.type)]
    return parquet.ParquetWriter(path, schema, compression=compression, use_dictionary=texts, write_page_checksum=True)


def open_parquet(path: str | Path | Address | BinaryIO) -> Any:
    """Open a Parquet file to read; pages that carry a checksum are verified."""
    from pyarrow import parquet

    file: Any = path
    if isinstance(path, Address):
        file = path.open()
    elif isinstance(path, str) and is_remote(path):
        file = open_binary(path)
    return parquet.ParquetFile(file, page_checksum_verification=True)


def read_parquet(path: str | Path | Address, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a whole Parquet file; a missing or damaged one raises a :class:`ConnectorError` that names it."""
    try:
        with open_parquet(path) as file:
            return file.read(None if columns is None else list(columns))
    except ConnectorError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise read_error(path, error) from error

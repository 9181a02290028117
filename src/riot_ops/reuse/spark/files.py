"""Small files that appear whole and survive a power cut."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from riot_ops.core.errors import ConnectorError
from riot_ops.core.paths import make_folder, write_atomic

__all__ = ["read_json", "write_bytes", "write_json"]

T = TypeVar("T")


def write_json(path: Path, content: msgspec.Struct | Mapping[str, object]) -> None:
    """Write a struct as JSON, atomically."""
    write_bytes(path, msgspec.json.encode(content))


def write_bytes(path: Path, data: bytes) -> None:
    """Write bytes atomically and create the folder if it does not exist."""
    try:
        make_folder(path.parent)
        write_atomic(path, data)
    except OSError as error:
        raise ConnectorError(f"{path} cannot be written: {error}; make room") from error


def read_json(path: Path, cls: type[T]) -> T:
    """Decode a JSON file into ``cls``."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=cls)
    except OSError as error:
        raise ConnectorError(f"{path} cannot be read: {error}") from error
    except msgspec.DecodeError as error:
        raise ConnectorError(f"{path} is damaged: {error}") from None

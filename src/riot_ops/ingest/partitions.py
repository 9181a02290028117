"""Folders whose names hold fields of the records in them: ``day=2024-05-01/site=north/readings.parquet``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.file_paths import StorageOptions, is_remote, path_in_store, readable_path
from riot_ops.core.storage import Address
from riot_ops.ingest.replay import find_files

__all__ = ["Partitions", "find_partitioned_files", "partition_schema"]

_FOLDER = re.compile(r"[^=/]+=[^/]*")
#: The folder of records without a value, as Hive and Spark name it.
MISSING = "__HIVE_DEFAULT_PARTITION__"
#: By file, the texts of its fields.
Partitions = Mapping[str, Mapping[str, str | None]]


def find_partitioned_files(
    path: str | Path | Sequence[str | Path], options: StorageOptions | None = None
) -> tuple[list[str], Partitions]:
    """Find files as :func:`riot_ops.ingest.replay.find_files` does, and those in folders with a field in their name.

    Returns the files, and by file the fields that its folders have below the given one.
    """
    found: list[str] = []
    partitions: dict[str, dict[str, str | None]] = {}
    for item in [path] if isinstance(path, str | Path) else path:
        root = readable_path(item, options=options)
        fields = _in_store(Address.of(root, options or {}), {}) if is_remote(root) else {}
        if os.path.isdir(root):
            fields = _in_folder(root, {})
        if any(fields.values()):
            partitions |= fields
            found += [path_in_store(one, options) for one in sorted(fields)]
        else:
            found += find_files(item, options)
    if not found:
        return find_files(path, options), {}
    if partitions:
        names = [tuple(partitions.get(one, ())) for one in found]
        for one, have in zip(found, names, strict=True):
            if have != names[0]:
                raise ConfigError(
                    f"all files must lie in folders of the same fields, but {found[0]} has {_listed(names[0])} and "
                    f"{one} has {_listed(have)}"
                )
    return found, partitions


def partition_schema(partitions: Partitions) -> pa.Schema:
    """Return the fields of folders, which are texts."""
    names = next(iter(partitions.values()), {})
    return pa.schema([(name, pa.string()) for name in names])


def _in_folder(folder: str, fields: Mapping[str, str | None]) -> dict[str, dict[str, str | None]]:
    found: dict[str, dict[str, str | None]] = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.isfile(path):
            if not name.startswith((".", "_")):  # Spark writes _SUCCESS
                found[os.path.abspath(path)] = dict(fields)
        elif _FOLDER.fullmatch(name) and not name.startswith("."):
            found |= _in_folder(path, {**fields, **_field(name)})
    return found


def _in_store(folder: Address, fields: Mapping[str, str | None]) -> dict[str, dict[str, str | None]]:
    if "*" in folder.url:
        return {}
    visible = [one.name for one in folder.files() if not one.name.startswith((".", "_"))]
    found: dict[str, dict[str, str | None]] = {f"{folder}/{name}": dict(fields) for name in visible}
    for name in folder.folders():
        if _FOLDER.fullmatch(name) and not name.startswith("."):
            found |= _in_store(folder / name, {**fields, **_field(name)})
    return found


def _field(name: str) -> dict[str, str | None]:
    key, _, value = name.partition("=")
    text = unquote(value)
    return {unquote(key): None if text == MISSING else text}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"

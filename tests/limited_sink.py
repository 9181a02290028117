"""A sink on a disk that is full while a file says so, for tests."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa

import riot_ops as ro


class LimitedSink(ro.ParquetSink):
    """Parquet files of which those of one stream find no space while the file ``full`` is in the folder above."""

    def __init__(self, folder: Path, stream: str) -> None:
        super().__init__(folder)
        self.stream = stream

    def open_file(self, path: Path, schema: pa.Schema) -> Any:
        path.touch()
        if path.parent.name == self.stream and (self.folder.parent / "full").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().open_file(path, schema)

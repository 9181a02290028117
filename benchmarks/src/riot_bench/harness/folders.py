"""Temporary folders."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["temporary_folder"]


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a temporary folder and delete it at the end."""
    path = Path(tempfile.mkdtemp(prefix="riot_ops-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)

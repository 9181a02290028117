"""Where the sample files of the tests are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

#: Files in the forms of the benchmarks' data sets, written by ``tools/make_samples.py``.
MADE = Path(__file__).resolve().parent / "data" / "samples"
#: The environment variable that names the folder of the papers' files.
PAPERS_VARIABLE = "RIOT_OPS_SHARED_DATA"


def sample_folders() -> dict[str, Path]:
    """Folders of sample files by name: ``made``, and ``papers`` where the files of the benchmarks' authors are.

    These are in ``../shared/data`` beside the checkout, or where the variable ``RIOT_OPS_SHARED_DATA`` says.
    """
    given = os.environ.get(PAPERS_VARIABLE)
    papers = Path(given) if given else Path(__file__).resolve().parents[2] / "shared" / "data"
    if given and not papers.is_dir():
        raise pytest.UsageError(f"{PAPERS_VARIABLE}={given} is not a folder")
    return {"made": MADE, **({"papers": papers} if papers.is_dir() else {})}


def expected(folder: Path, *, made: Any, papers: Any) -> Any:
    """Expected contents of the files in a folder of samples: the project's own, or those of the papers."""
    return made if folder == MADE else papers

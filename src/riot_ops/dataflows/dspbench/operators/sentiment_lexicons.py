"""Sentiment lexicons: the library's own, and lexicons in files."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from riot_ops.core.errors import ConfigError, excerpt
from riot_ops.core.paths import local_path

__all__ = ["STOP_WORDS", "VALENCES", "normalise_valences", "read_valences", "read_words"]

MAX_BYTES = 64 << 20

_BY_VALENCE = {
    4: "amazing awesome brilliant fantastic superb wonderful",
    3: "beautiful best excellent glad great happy joy love loved loves perfect",
    2: "cool enjoy enjoyed fun fresh good helpful improved kind nice pleased proud smart success thanks win",
    1: "better calm clean clear easy fine hope interesting like ok reliable safe stable useful warm yes",
    -1: "cold delay delayed hard late missing no problem slow stuck unclear worried",
    -2: "alarm angry bad broken error expensive fail failed fault lost noisy poor sad sick unsafe weak wrong",
    -3: "afraid awful damage disaster hate hated hurt scared terrible useless waste worse worst",
    -4: "catastrophe disgusting horrible horrific nightmare torture",
}
#: Words and their values, from -4 to 4; written for this library.
VALENCES: dict[str, float] = {word: float(v) for v, words in _BY_VALENCE.items() for word in words.split()}
VALENCES |= {"not good": -2.0, "not bad": 1.0, "can't stand": -3.0}

_STOP_WORDS_TEXT = (
    "a about after all also am an and any are as at be been before but by can did do for from had has have he her "
    "his i if in into is it its just me my of on or our she so some than that the their them then there these "
    "they this to up us was we were what when which who will with you your"
)
#: Words without sentiment; written for this library.
STOP_WORDS: tuple[str, ...] = tuple(_STOP_WORDS_TEXT.split())

Read = TypeVar("Read")


def normalise_valences(lexicon: Any) -> tuple[tuple[str, float], ...]:
    """Check and sort the entries of a lexicon, so that equal lexicons make equal tasks."""
    try:
        pairs = lexicon.items() if isinstance(lexicon, Mapping) else lexicon
        entries = sorted((str(term), float(value)) for term, value in pairs)
    except (TypeError, ValueError):
        raise ConfigError("lexicon must be a path, or map words to numbers") from None
    if not entries or not all(term.strip() and math.isfinite(value) for term, value in entries):
        raise ConfigError("lexicon must map at least one word that is not empty to a finite number")
    if len(dict(entries)) < len(entries):
        raise ConfigError("lexicon has a word twice")
    return tuple(entries)


def read_valences(path: str) -> tuple[tuple[str, float], ...]:
    """Read a lexicon from a file of lines ``term<TAB>valence``; text after a further tab is ignored."""
    return _read_file("lexicon", path, _valences)


def read_words(path: str) -> tuple[str, ...]:
    """Read words from a file, one per line; lines that begin with ``#`` are comments."""
    return _read_file("stop_words", path, _words)


def _read_file(parameter: str, path: str, read: Callable[[str, Iterable[str]], Read]) -> Read:
    """Parse a file once per process and version of the file."""
    file = local_path(path)
    try:
        status = file.stat()
        if status.st_size > MAX_BYTES:
            raise ConfigError(f"{parameter}: {path} has {status.st_size} bytes; the maximum is {MAX_BYTES}")
        return _read_version(file, path, status.st_mtime_ns, status.st_size, read)  # type: ignore[no-any-return]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{parameter}: {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


@functools.lru_cache(maxsize=16)
def _read_version(file: Path, path: str, modified: int, size: int, read: Callable[[str, Iterable[str]], Any]) -> Any:
    return read(path, file.read_text(encoding="utf-8-sig").split("\n"))


def _valences(path: str, lines: Iterable[str]) -> tuple[tuple[str, float], ...]:
    entries = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        term, _, rest = line.partition("\t")
        try:
            value = float(rest.partition("\t")[0])
        except ValueError:
            value = math.nan
        if not term.strip() or not math.isfinite(value):
            raise ConfigError(f"lexicon: line {number} of {path} must be a term, a tab and a number: {excerpt(line)!r}")
        entries[term] = value
    return normalise_valences(entries)


def _words(path: str, lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted({line.strip() for line in lines if line.strip() and not line.startswith("#")}))

"""The exceptions of riot_ops: one root, stable codes, texts that name the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, ClassVar

__all__ = [
    "ConfigError",
    "ConnectorError",
    "MissingExtraError",
    "ModelError",
    "ParseError",
    "RecordError",
    "RiotError",
    "StateError",
    "did_you_mean",
    "encodable",
    "exception_text",
    "excerpt",
    "printable",
    "short",
]

EXCERPT_LENGTH = 200


class RiotError(Exception):
    """Root of all errors. ``code`` is stable and documented; the text may change."""

    code: ClassVar[str] = "riot.error"


class ConfigError(RiotError, ValueError):
    """A wrong parameter, dataflow or descriptor; raised at construction."""

    code = "riot.config"


class RecordError(RiotError, ValueError):
    """One record cannot be processed; it goes to the errors stream.

    Raise it (with a short ``reason``) in a function given to ``ro.map`` and friends to reject
    the record at hand.
    """

    code = "riot.record"

    def __init__(self, message: str, *, reason: str = "rejected") -> None:
        super().__init__(message)
        self.reason = reason


class ParseError(RecordError):
    """Text that does not follow its format."""

    code = "riot.parse"

    def __init__(self, message: str, *, offset: int = -1, text: str = "") -> None:
        where = f" at offset {offset}" if offset >= 0 else ""
        what = f": {excerpt(text)!r}" if text else ""
        super().__init__(f"{message}{where}{what}", reason="malformed")
        self.offset = offset


class StateError(RiotError):
    """State of another task, version or parameters."""

    code = "riot.state"


class ModelError(RiotError, ValueError):
    """A trained model that is missing, damaged or unfit for its use, or that cannot be trained."""

    code = "riot.model"


class ConnectorError(RiotError, OSError):
    """A source or sink failed; ``retryable`` tells whether trying again can help."""

    code = "riot.connector"

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class MissingExtraError(RiotError, ImportError):
    """An optional dependency is not installed.

    Parameters
    ----------
    feature : str
        What needs it.
    extra : str
        The extra that brings it; empty where another package does.
    package : str
        What to install.
    """

    code = "riot.missing_extra"

    def __init__(self, feature: str, extra: str = "", *, package: str = "riot-ops") -> None:
        wanted = f"{package}[{extra}]" if extra else package
        super().__init__(f"{feature} needs an optional dependency: pip install '{wanted}'")


def excerpt(text: str, length: int = EXCERPT_LENGTH) -> str:
    """The beginning of a text, short enough for an error message.

    >>> excerpt("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


def short(value: Any) -> str:
    """A value and its type for a message.

    >>> short("warm")
    "'warm' (str)"
    """
    try:
        text = repr(value)
    except Exception:  # the value is a user's, and so is what it raises
        text = "a value without a text"
    return f"{excerpt(text, 60)} ({type(value).__name__})"


def encodable(text: str) -> str:
    r"""A text that can be written as UTF-8: lone surrogates are spelt out.

    >>> encodable("a\ud800")
    'a\\ud800'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def printable(text: str) -> str:
    r"""A text that takes one line and moves no cursor: control characters are spelt out.

    >>> printable("a\nb\x1b[31m")
    'a\\nb\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def exception_text(error: BaseException) -> str:
    """What an exception says, even where asking it fails.

    >>> exception_text(ValueError("too warm"))
    'too warm'
    """
    try:
        return str(error)
    except Exception as second:  # a user's own __str__
        return f"(its text raised {type(second).__name__})"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint for an unknown name, or nothing.

    >>> did_you_mean("kalman_filer", ["kalman_filter", "bloom_filter"])
    '; did you mean "kalman_filter"?'
    """
    close = difflib.get_close_matches(word, list(known), n=1)
    return f'; did you mean "{close[0]}"?' if close else ""

"""The exceptions of riot_ops, with stable codes, and the helpers that write their messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    import msgspec

__all__ = [
    "ConfigError",
    "ConnectorError",
    "MissingExtraError",
    "ModelError",
    "ParseError",
    "RecordError",
    "RiotError",
    "StateError",
    "describe_validation_error",
    "did_you_mean",
    "escape_control",
    "escape_surrogates",
    "exception_text",
    "excerpt",
    "value_text",
]

EXCERPT_LENGTH = 200
#: Parts of messages of libraries about a file whose content is not what it should be.
DAMAGED = (
    r"magic bytes|[Ii]nvalid JSON|Json error|[Tt]runcated|[Cc]orrupt|[Pp]arquet file size|footer|[Cc]hecksum"
    r"|[Uu]nexpected end|TableMetadata|not a database|[Nn]ot a gzipped|end-of-stream"
)


class RiotError(Exception):
    """Base of all errors. ``code`` is stable and documented; the text may change.

    Examples
    --------
    >>> import riot_ops as ro
    >>> try:
    ...     ro.read("missing.csv")
    ... except ro.RiotError as error:
    ...     print(error.code)
    riot.connector
    """

    code: ClassVar[str] = "riot.error"


class ConfigError(RiotError, ValueError):
    """A wrong parameter, dataflow or descriptor; raised at construction.

    Examples
    --------
    >>> from riot_ops import tasks as t
    >>> t.KalmanFilter(process_noise=-1)
    Traceback (most recent call last):
        ...
    riot_ops.core.errors.ConfigError: KalmanFilter: process_noise = -1: Expected `float` > 0.0
    """

    code = "riot.config"


class RecordError(RiotError, ValueError):
    """One record cannot be processed; it goes to the errors stream.

    A function given to ``ro.map`` and the like raises it, with a short ``reason``, to reject the current record.

    Examples
    --------
    >>> import riot_ops as ro
    >>> def celsius(row):
    ...     if row["value"] < -273.15:
    ...         raise ro.RecordError("below absolute zero", reason="impossible")
    ...     return row
    >>> live = ro.map(celsius).session()
    >>> live.push({"value": -300.0})
    []
    >>> live.errors[0]["reason"], live.errors[0]["message"]
    ('impossible', 'below absolute zero')
    """

    code = "riot.record"

    def __init__(self, message: str, *, reason: str = "rejected") -> None:
        super().__init__(message)
        self.reason = reason


class ParseError(RecordError):
    """Text that does not follow its format.

    Examples
    --------
    >>> from riot_ops.core.errors import ParseError
    >>> error = ParseError("expected a number", offset=3, text="12,x")
    >>> print(error)
    expected a number at offset 3: '12,x'
    >>> error.reason, error.offset
    ('malformed', 3)
    """

    code = "riot.parse"

    def __init__(self, message: str, *, offset: int = -1, text: str = "") -> None:
        where = f" at offset {offset}" if offset >= 0 else ""
        what = f": {excerpt(text)!r}" if text else ""
        super().__init__(f"{message}{where}{what}", reason="malformed")
        self.offset = offset


class StateError(RiotError):
    """The state belongs to another task, another version or other parameters.

    Examples
    --------
    >>> from riot_ops import tasks as t
    >>> kept = t.MovingAverage(window=3).session().snapshot()
    >>> t.MovingAverage(window=5).session().restore(kept)
    Traceback (most recent call last):
        ...
    riot_ops.core.errors.StateError: the state of moving_average was written with other parameters ...
    """

    code = "riot.state"


class ModelError(RiotError, ValueError):
    """A trained model is missing, damaged or unsuitable, or a model cannot be trained.

    Examples
    --------
    >>> from riot_ops import models
    >>> models.model_from_bytes(b"no model")
    Traceback (most recent call last):
        ...
    riot_ops.core.errors.ModelError: the model is damaged or not a riot_ops model: JSON is malformed: ...
    """

    code = "riot.model"


class ConnectorError(RiotError, OSError):
    """A source or sink failed; ``retryable`` says whether another attempt can succeed.

    Examples
    --------
    >>> import riot_ops as ro
    >>> error = ro.ConnectorError("mqtt://127.0.0.1:1883 does not answer", retryable=True)
    >>> error.code, error.retryable
    ('riot.connector', True)
    """

    code = "riot.connector"

    def __init__(self, message: str, *, retryable: bool = False) -> None:
        super().__init__(message)
        self.retryable = retryable


class MissingExtraError(RiotError, ImportError):
    """An optional dependency is not installed.

    Parameters
    ----------
    feature : str
        The feature that needs the dependency.
    extra : str, default ""
        The extra of ``package`` that installs it; empty if ``package`` itself does.
    package : str, default "riot-ops"
        The package to install.

    Examples
    --------
    >>> import riot_ops as ro
    >>> print(ro.MissingExtraError("a plot", "plot"))
    a plot needs an optional dependency: pip install 'riot-ops[plot]'
    """

    code = "riot.missing_extra"

    def __init__(self, feature: str, extra: str = "", *, package: str = "riot-ops") -> None:
        requirement = f"{package}[{extra}]" if extra else package
        super().__init__(f"{feature} needs an optional dependency: pip install '{requirement}'")


def excerpt(text: str, length: int = EXCERPT_LENGTH) -> str:
    """Return the beginning of a text, short enough for an error message.

    >>> excerpt("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= length else text[: length - 1] + "…"


def read_error(path: object, error: Exception) -> ConnectorError:
    """Return the error that a file cannot be read, with what helps.

    >>> str(read_error("a.parquet", OSError("Parquet magic bytes not found in footer")))
    "cannot read a.parquet: Parquet magic bytes not found in footer; it is damaged or not complete: let its writer give
    it another name, such as '.a', until it is complete, or leave it out"
    """
    text = " ".join(str(error).split()).removesuffix(".")
    name = str(path).rpartition("/")[2]
    if isinstance(error, FileNotFoundError):
        remedy = "check the path"
    elif isinstance(error, PermissionError):
        remedy = "let this user read it"
    elif isinstance(error, UnicodeError):
        remedy = "give its encoding="
    elif re.search(DAMAGED, text):
        remedy = (
            f"it is damaged or not complete: let its writer give it another name, such as '.{name.partition('.')[0]}', "
            "until it is complete, or leave it out"
        )
    else:
        remedy = "check its content and its format"
    return ConnectorError(f"cannot read {path}: {excerpt(text, 300)}; {remedy}")


def value_text(value: Any) -> str:
    """Show a value and its type, shortened for a message.

    >>> value_text("warm")
    "'warm' (str)"
    """
    try:
        text = repr(value)
    except Exception:  # a user's __repr__ may raise anything
        text = "a value without a text"
    return f"{excerpt(text, 60)} ({type(value).__name__})"


def escape_surrogates(text: str) -> str:
    r"""Escape lone surrogates, so that the text can be encoded as UTF-8.

    >>> escape_surrogates("a\ud800")
    'a\\ud800'
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def escape_control(text: str) -> str:
    r"""Escape control characters, so that the text stays on one line of a terminal.

    >>> escape_control("a\nb\x1b[31m")
    'a\\nb\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def exception_text(error: BaseException) -> str:
    """Return the message of an exception, also if its ``__str__`` raises.

    >>> exception_text(ValueError("too warm"))
    'too warm'
    """
    try:
        return str(error)
    except Exception as second:  # a user's own __str__
        return f"(its text raised {type(second).__name__})"


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return a hint at the known name most like an unknown one; empty if none is alike.

    >>> did_you_mean("kalman_filer", ["kalman_filter", "bloom_filter"])
    '; did you mean "kalman_filter"?'
    """
    import difflib  # only errors need it

    close = difflib.get_close_matches(word, list(known), n=1) if isinstance(word, str) else ()
    return f'; did you mean "{close[0]}"?' if close else ""


def describe_validation_error(
    error: msgspec.ValidationError, data: Any, allowed: Mapping[str, Sequence[str]] | None = None
) -> str:
    r"""Say where external data does not match its schema: the path, the value there, and msgspec's reason.

    Parameters
    ----------
    error : msgspec.ValidationError
    data : object
        The data that msgspec refused.
    allowed : mapping of str to sequence of str, optional
        By field name, the texts that the field may hold; they replace msgspec's reason.

    Examples
    --------
    >>> import msgspec
    >>> try:
    ...     _ = msgspec.convert([{"x": 1}, {"x": "2"}], list[dict[str, int]])
    ... except msgspec.ValidationError as error:
    ...     print(error, "...", describe_validation_error(error, [{"x": 1}, {"x": "2"}]), sep="\n")
    Expected `int`, got `str` - at `$[1][...]`
    ...
    [1] = an object with x: Expected `int`, got `str`
    """
    reason, _, path = str(error).partition(" - at `$")
    place, value = "", data
    for name, number in re.findall(r"\.([^.\[`]+)|\[(\d+|\.\.\.)\]", path):
        if number == "...":  # msgspec does not name the key of the object
            break
        key: Any = name or int(number)
        place += f".{name}" if name else f"[{number}]"
        value = value[key]
    texts = (allowed or {}).get(place.rpartition(".")[2])
    if texts and isinstance(value, str):
        reason = f"must be {', '.join(map(repr, texts))}{did_you_mean(value, texts)}"
    return f"{place.lstrip('.')} = {_shape_text(value)}: {reason}" if place else f"{_shape_text(value)}: {reason}"


def _shape_text(value: Any) -> str:
    """Show a value; of an object only the names, since a value may be a secret."""
    if isinstance(value, Mapping):
        return f"an object with {', '.join(map(str, value)) or 'nothing'}"
    return "a list" if isinstance(value, list) else value_text(value)

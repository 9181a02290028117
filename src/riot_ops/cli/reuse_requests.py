"""The requests that a manager answers, and their fields."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from riot_ops.core.errors import ConfigError, describe_validation_error, did_you_mean

__all__ = ["decode_request", "parse_request"]


class _Request(msgspec.Struct, forbid_unknown_fields=True):
    """A request without arguments."""


class _Named(_Request):
    name: str


class _Show(_Request):
    form: Literal["mermaid", "svg"]


class _Explain(_Request):
    dataflow: dict[str, Any]
    sources: dict[str, Any] = msgspec.field(default_factory=dict)
    sinks: dict[str, Any] = msgspec.field(default_factory=dict)
    fold: bool = False
    flag_warm: bool = False


class _Dataflow(_Explain):
    name: str | None = None
    owner: str | None = None
    on_slow: str = "detach"
    on_failure: str = "detach"


class _Submit(_Request):
    dataflows: list[_Dataflow]


REQUESTS: dict[str, type[_Request]] = {
    "submit": _Submit,
    "explain": _Explain,
    **dict.fromkeys(("remove", "pause", "resume"), _Named),
    **dict.fromkeys(("list", "stats", "usage", "defragment", "stop"), _Request),
    "show": _Show,
}


def decode_request(line: bytes) -> dict[str, Any]:
    r"""Decode the request in a line.

    >>> decode_request(b'{"do": "list"}'), parse_request(decode_request(b'{"do": "list"}'))
    ({'do': 'list'}, ('list', {}))
    """
    try:
        request = msgspec.json.decode(line)
        if b"\\ud" in line.lower():  # may be a lone surrogate, which UTF-8 cannot encode
            json.dumps(request, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"a request must be a line of JSON: {error}") from None
    if not isinstance(request, dict):
        raise ConfigError(f"a request must be a JSON object, got {type(request).__name__}")
    return request


def parse_request(request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Check the fields of a request; return its action and its arguments."""
    do = request.get("do")
    if not isinstance(do, str) or do not in REQUESTS:
        hint = did_you_mean(do, REQUESTS) if isinstance(do, str) else ""
        raise ConfigError(f"a request's 'do' must be one of {', '.join(REQUESTS)}, got {do!r}{hint}")
    arguments = {name: value for name, value in request.items() if name != "do"}
    try:
        parsed = msgspec.convert(arguments, REQUESTS[do])
    except msgspec.ValidationError as error:
        why = describe_validation_error(error, arguments, {"form": ("mermaid", "svg")})
        if "unknown field" in why:
            kind = _Dataflow if "dataflows[" in why else REQUESTS[do]
            why += f"; known are {', '.join(kind.__struct_fields__) or 'none'}"
        raise ConfigError(f"{do}: {why}") from None
    if isinstance(parsed, _Submit):
        return do, {"dataflows": [msgspec.structs.asdict(dataflow) for dataflow in parsed.dataflows]}
    return do, msgspec.structs.asdict(parsed)

"""What may be asked of a manager that serves, and of which form it has to be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.core.misfit import misfit

__all__ = ["decoded", "requested"]


class _Form(msgspec.Struct, forbid_unknown_fields=True):
    """What is asked with a word alone."""


class _Named(_Form):
    name: str


class _Show(_Form):
    form: Literal["mermaid", "svg"]


class _Explain(_Form):
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


class _Submit(_Form):
    dataflows: list[_Dataflow]


FORMS: dict[str, type[_Form]] = {
    "submit": _Submit,
    "explain": _Explain,
    **dict.fromkeys(("remove", "pause", "resume"), _Named),
    **dict.fromkeys(("list", "stats", "defragment", "stop"), _Form),
    "show": _Show,
}


def decoded(line: bytes) -> dict[str, Any]:
    r"""The request in a line.

    >>> decoded(b'{"do": "list"}'), requested(decoded(b'{"do": "list"}'))
    ({'do': 'list'}, ('list', {}))
    """
    try:
        request = msgspec.json.decode(line)
        if b"\\ud" in line.lower():  # perhaps half a character, which no file can hold
            json.dumps(request, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"a request must be a line of JSON: {error}") from None
    if not isinstance(request, dict):
        raise ConfigError(f"a request is a JSON object, got {type(request).__name__}")
    return request


def requested(request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """What a request wants done, and with what; raises where it has not the form for that."""
    do = request.get("do")
    if not isinstance(do, str) or do not in FORMS:
        hint = did_you_mean(do, FORMS) if isinstance(do, str) else ""
        raise ConfigError(f"a request's 'do' must be one of {', '.join(FORMS)}, got {do!r}{hint}")
    given = {name: value for name, value in request.items() if name != "do"}
    try:
        found = msgspec.convert(given, FORMS[do])
    except msgspec.ValidationError as error:
        why = misfit(error, given, {"form": ("mermaid", "svg")})
        if "unknown field" in why:
            kind = _Dataflow if "dataflows[" in why else FORMS[do]
            why += f"; known are {', '.join(kind.__struct_fields__) or 'none'}"
        raise ConfigError(f"{do}: {why}") from None
    if isinstance(found, _Submit):
        return do, {"dataflows": [msgspec.structs.asdict(one) for one in found.dataflows]}
    return do, msgspec.structs.asdict(found)

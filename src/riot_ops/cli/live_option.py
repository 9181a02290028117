"""The option ``--live``, whose value may be left out."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from riot_ops.core.errors import ConfigError

__all__ = ["TOKEN_VARIABLE", "LiveCommand", "live_url"]

#: Environment variable with the token that readers of the page have to give.
TOKEN_VARIABLE = "RIOT_OPS_LIVE_TOKEN"  # noqa: S105 (a name)
#: A free port of this machine.
LOCAL = "http://127.0.0.1"


class LiveCommand(TyperCommand):
    """A command whose option ``--live`` needs no value."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [f"--live={LOCAL}" if a == "--live" else a for a in args[:end]] + args[end:])


def live_url(value: str) -> str:
    """Return the address that a value of ``--live`` means: a port of this machine, or an address.

    >>> live_url("8080"), live_url("http://0.0.0.0:8080")
    ('http://127.0.0.1:8080', 'http://0.0.0.0:8080')
    """
    if not value.isdecimal():
        return value
    if not 0 < int(value) < 65536:
        raise ConfigError(f"--live must be a port from 1 to 65535, or an address, got {value}")
    return f"{LOCAL}:{value}"

"""Optional dependencies of the benchmarks."""

from __future__ import annotations

from riot_ops.core.errors import MissingExtraError

__all__ = ["require_extra"]


def require_extra(feature: str, extra: str, *modules: str) -> None:
    """Raise :class:`MissingExtraError` if a module of an extra is not installed."""
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            raise MissingExtraError(feature, extra) from None

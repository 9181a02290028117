"""Errors of submitted dataflows and of actions of the manager."""

from __future__ import annotations

from typing import ClassVar

from riot_ops.core.errors import ConfigError, RiotError, exception_text

__all__ = [
    "BoundaryError",
    "CycleError",
    "DanglingStreamError",
    "DescriptorError",
    "DisconnectedError",
    "DuplicateNameError",
    "DuplicateStreamError",
    "EmptyDataflowError",
    "EnactError",
    "FailedBeforeError",
    "NotDeduplicatedError",
    "UnknownDataflowError",
    "describe_error",
]


class DescriptorError(ConfigError):
    """A step has no signature: a parameter is not finite, or a function has no name for the log."""


class DuplicateNameError(ConfigError):
    """A dataflow of that name is already running."""


class UnknownDataflowError(ConfigError):
    """No dataflow of that name is running."""


class EmptyDataflowError(ConfigError):
    """A dataflow without steps."""


class DuplicateStreamError(ConfigError):
    """Two edges between the same nodes."""


class DanglingStreamError(ConfigError):
    """An edge that ends at no node."""


class CycleError(ConfigError):
    """Steps that depend on each other in a cycle."""


class BoundaryError(ConfigError):
    """A node without inputs that is not a source, one without outputs that is not a sink, or the reverse."""


class DisconnectedError(ConfigError):
    """A dataflow in several unconnected parts, which could be submitted separately."""


class NotDeduplicatedError(ConfigError):
    """Steps of one dataflow that do the same work."""


class EnactError(RiotError):
    """The back end could not enact an action; nothing has changed."""

    code: ClassVar[str] = "riot.reuse.enact"


class FailedBeforeError(RiotError):
    """A failure from before a restart: the step has missed records since, and runs again only if submitted again."""

    code: ClassVar[str] = "riot.reuse.failed_before"


def describe_error(error: Exception) -> str:
    """Return the type and message of an error; of one from before a restart, its text."""
    return str(error) if isinstance(error, FailedBeforeError) else f"{type(error).__name__}: {exception_text(error)}"

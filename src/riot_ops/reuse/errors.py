"""What can be wrong with a dataflow that is submitted, or with what is asked of the manager."""

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
    "told",
]


class DescriptorError(ConfigError):
    """A step cannot be described: a parameter that is not finite, or a function that cannot be named in the log."""


class DuplicateNameError(ConfigError):
    """A dataflow of that name is running."""


class UnknownDataflowError(ConfigError):
    """No dataflow of that name is running."""


class EmptyDataflowError(ConfigError):
    """A dataflow without steps."""


class DuplicateStreamError(ConfigError):
    """Two edges between the same nodes."""


class DanglingStreamError(ConfigError):
    """An edge that ends at no node."""


class CycleError(ConfigError):
    """Steps that wait for each other."""


class BoundaryError(ConfigError):
    """A node without inputs that is no source, one without outputs that is no sink, or the contrary."""


class DisconnectedError(ConfigError):
    """A dataflow in several parts, each of which could be submitted by itself."""


class NotDeduplicatedError(ConfigError):
    """Steps of one dataflow that do the same."""


class EnactError(RiotError):
    """The back end could not do what was asked; all is as it was before."""

    code: ClassVar[str] = "riot.reuse.enact"


class FailedBeforeError(RiotError):
    """What failed before a restart, and lacks records since: it goes on only if it is removed and submitted again."""

    code: ClassVar[str] = "riot.reuse.failed_before"


def told(error: Exception) -> str:
    """What went wrong, whenever that was."""
    return str(error) if isinstance(error, FailedBeforeError) else f"{type(error).__name__}: {exception_text(error)}"

"""The session of all tests, for what starts and stops one of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock


@contextlib.contextmanager
def used_by_the_command(spark: Any) -> Iterator[None]:
    """Have the command, run in this process, take a session like its own and stop nothing but its queries."""
    with mock.patch.object(type(spark), "stop", autospec=True) as stopped:
        yield
    assert stopped.call_count == 1, "it stops its processes"

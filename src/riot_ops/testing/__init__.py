"""A kit for testing tasks, sources and dataflows, yours as well as those of riot_ops.

:data:`CHECKS` states what holds for every task; :func:`check_task` runs all of it over a task's own
:meth:`~riot_ops.task.Task.cases`. :class:`ScriptedSource` plays a list of batches with ends, crashes,
pauses and steps of stream time in it, :class:`ManualClock` is time that a test moves.
:func:`keep_state` keeps a task's state for :func:`check_kept_state` in later releases.
:func:`check_parameter_names` compares names of parameters with those of riot_ops, and
:func:`check_aggregate` cuts the values of an aggregate of your own anywhere.
"""

from riot_ops.testing.aggregates import check_aggregate
from riot_ops.testing.checks import CHECKS, applies, check_task, exact, uncompiled
from riot_ops.testing.parameter_names import check_parameter_names
from riot_ops.testing.sources import ABORT, ADVANCE, EOF, PAUSE, ManualClock, ScriptedSource
from riot_ops.testing.states import check_kept_state, keep_state

__all__ = [
    "ABORT",
    "ADVANCE",
    "CHECKS",
    "EOF",
    "PAUSE",
    "ManualClock",
    "ScriptedSource",
    "applies",
    "check_aggregate",
    "check_kept_state",
    "check_parameter_names",
    "check_task",
    "exact",
    "keep_state",
    "uncompiled",
]

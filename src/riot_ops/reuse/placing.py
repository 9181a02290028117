"""From the steps of a dataflow to those that run, for it and others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from riot_ops.dataflow import Dataflow
from riot_ops.graph.lowering import AT_TIME, BEATS, Route, Step, lower
from riot_ops.graph.marks import Marks

__all__ = ["placed_steps"]


def placed_steps(flow: Dataflow, placed: Mapping[str, str]) -> list[tuple[Step, str, str]]:
    """The steps of a dataflow as those of the engine, each with the node that needs it and the dataflow's name for it.

    Marks may be of several resolutions in one stream: they are told apart by it.
    """
    steps = lower(flow)
    ids: dict[str, str] = {}
    for step in steps:
        if isinstance(step.operator, Marks):
            place = step.id.removesuffix(AT_TIME)
            marks = step.operator
            ids[step.id] = f"{placed[place]}@{marks.resolution}{'!' if marks.guarded else ''}{AT_TIME}"
        elif isinstance(step.operator, Route):
            source, _, target = step.id.partition("->")
            ids[step.id] = f"{placed[source]}->{placed[target]}"
        else:
            ids[step.id] = placed[step.id]
            ids[step.id + BEATS] = placed[step.id] + BEATS
    found: list[tuple[Step, str, str]] = []
    for step in steps:
        own = replace(step, id=ids[step.id], inputs=tuple(ids[stream] for stream in step.inputs))
        if step.clock is not None:
            own = replace(own, clock=replace(step.clock, streams=tuple(ids[s] for s in step.clock.streams)))
        nodes = [step.id]
        if isinstance(step.operator, Marks):  # for all that go by them
            nodes = [s.id for s in steps if s.clock is not None and step.id in s.clock.streams]
        elif isinstance(step.operator, Route):
            nodes = [step.id.partition("->")[2]]
        found += [(own, node, step.name) for node in nodes]
    return found

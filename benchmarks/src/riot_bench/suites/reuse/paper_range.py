"""As many dataflows as the paper's journal version has, and a minute of their streams between two actions, in process.

The versions of the paper have 35 and 21 dataflows, and 86. Their rates, the work of a task and the time between two
actions are not known. Here each stream of RIoTBench has ten messages per second, each other one one message per second.
A second of stream time is a batch, and no time passes between two: CPU time does not depend on it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.measure import Measure
from riot_bench.suites.reuse import local
from riot_bench.suites.reuse.sides import Side
from riot_bench.suites.reuse.traces import Action, count_steps
from riot_bench.suites.reuse.workloads import opmw_like, riot21
from riot_ops.core.sink import CallbackSink
from riot_ops.dataflow import Dataflow
from riot_ops.reuse import signatures

__all__ = ["DATAFLOWS", "paper_dataflows", "range_measures"]

#: Number of dataflows of the journal version.
DATAFLOWS = 86
#: Seconds of stream time between two actions, and messages per second of each stream.
BETWEEN_S, RATES = 60, {"riot": 10, "opmw": 1}
#: Ranges of savings in the paper's journal version.
PAPER_TASKS, PAPER_CPU = (0.34, 0.45), (0.29, 0.63)


def paper_dataflows(work: Callable[[dict[str, Any]], dict[str, Any]]) -> dict[str, Dataflow]:
    """Create 21 dataflows of RIoTBench's tasks and 65 synthetic ones whose tasks do some work."""
    riot = riot21()
    return {flow.name: flow for flow in (*riot, *opmw_like(n=DATAFLOWS - len(riot), work=work))}


def range_measures(
    name: str, flows: Mapping[str, Dataflow], actions: Sequence[Action], seconds: int = BETWEEN_S, run: bool = True
) -> Iterator[Measure]:
    """Count the saved tasks over a trace, and measure the saved CPU time.

    Parameters
    ----------
    name : str
        Prefix of the measures' names.
    flows : mapping of str to Dataflow
    actions : sequence of Action
    seconds : int, default 60
        Seconds of stream time between two actions.
    run : bool, default True
        Whether to run the dataflows; otherwise only tasks are counted.
    """
    saved = count_steps(actions, {flow.name: signatures(flow).values() for flow in flows.values()})
    what = f"saved tasks of {max(saved.alone)} separate ones; in the paper {_percent(PAPER_TASKS)}"
    yield Measure(f"{name}/tasks-peak-reduction", saved.peak, "share", what, published=PAPER_TASKS[1])
    what = f"the same, summed over {len(actions)} actions"
    yield Measure(f"{name}/tasks-sum-reduction", saved.total, "share", what)
    if not run:
        return
    with pinned_to_one_core():
        together = _spent(True, flows, actions, seconds)
        apart = _spent(False, flows, actions, seconds)
    theirs = f"; in the paper {_percent(PAPER_CPU)}"
    for part, which, t, a, paper, published in (
        ("cpu", "between actions", together[0], apart[0], theirs, PAPER_CPU[1]),
        ("actions-cpu", "of the actions", together[1], apart[1], "", None),
    ):
        what = f"CPU seconds {which}, shared ({t:.1f}) and separate ({a:.1f}), {seconds} s of the streams per action"
        yield Measure(f"{name}/{part}-reduction", 1 - t / a, "share", what + paper, published=published)


def _spent(shared: bool, flows: Mapping[str, Dataflow], actions: Sequence[Action], seconds: int) -> tuple[float, float]:
    """Run a trace; return the CPU seconds between the actions and of the actions."""
    between = acting = 0.0
    sides = {
        load: Side(shared, flows, local.open_source, lambda name: CallbackSink(lambda stream, batch: None), rate)
        for load, rate in RATES.items()
    }
    for action in actions:
        begin = time.process_time()
        sides["opmw" if action.name.startswith("opmw") else "riot"].apply(action)
        middle = time.process_time()
        for _ in range(seconds):
            for side in sides.values():
                side.turn()
        acting += middle - begin
        between += time.process_time() - middle
    for side in sides.values():
        side.close()
    return between, acting


def _percent(span: tuple[float, float]) -> str:
    return f"{100 * span[0]:.0f} to {100 * span[1]:.0f} %"

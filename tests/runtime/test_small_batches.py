"""The cost of a message that is a batch of its own: what is called for it, which no clock has to measure."""

from __future__ import annotations

import os
import sys

import pytest

from riot_ops import dataflows
from riot_ops.core.sink import FanOutWriter, MemorySink
from riot_ops.runtime.batches import ARRIVAL
from riot_ops.runtime.binding import bind_sinks
from riot_ops.runtime.parallel import create_engine
from riot_ops.streams.riotbench.city import CitySource

#: Messages after which all keys are known and all windows full, and those that are counted.
WARM, COUNTED = 200, 20
#: Functions in Python and in C that STATS may call for a message, from the engine to the sink: some 490, of which a few
#: depend on what ran before in the process.
MAX_CALLS = 510


@pytest.mark.long
@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="kernels are plain Python")
def test_calls_for_a_message_of_its_own_are_bounded():
    source = CitySource(20, messages=WARM + COUNTED, dirt=False)
    (split,) = source.splits(source.initial(), source.latest(source.initial()), 1)
    (batch,) = source.read(split)
    flow = dataflows.stats("city", average_window=2, regression_window=2)
    sinks, routes = bind_sinks(flow, MemorySink(), None)
    engine, _ = create_engine(flow, set(routes), ARRIVAL, 1)
    writer = FanOutWriter(routes, sinks, 0, 0, flow.result_ordinals())
    rows: list[int] = []
    calls = 0

    def push(part):
        for stream, made in engine.process({"city": [part]}).items():
            for one in made:
                writer.write(stream, one)
                rows.append(one.num_rows)

    def count(_frame, event, _argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    push(batch.slice(0, WARM - 2))
    for row in range(WARM - 2, WARM):
        push(batch.slice(row, 1))
    rows.clear()
    sys.setprofile(count)
    try:
        for row in range(WARM, WARM + COUNTED):
            push(batch.slice(row, 1))
    finally:
        sys.setprofile(None)
    assert rows == [5] * 3 * COUNTED  # an average, a regression and a count of each observation
    assert calls / COUNTED <= MAX_CALLS

"""Size of a deployment: from measured rates and state per key to cores, memory and partitions."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import resource
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from riot_ops.core.errors import ConfigError
from riot_ops.core.sink import Message, Sink, Writer
from riot_ops.dataflow import Dataflow
from riot_ops.measure.metrics import Summary
from riot_ops.runtime.engine import Engine

__all__ = ["Calibration", "DiscardSink", "Size", "StepState", "calibrate", "check_load", "size_for"]

#: Cores of an executor, and of its heap per core: the JVM only moves blocks, as the work is in Python processes.
EXECUTOR_CORES = 4
HEAP_BYTES = 256 << 20
#: Time between micro-batches that a size is for.
TRIGGER_SECONDS = 1.0
#: While a checkpoint is written the state is in memory twice: as arrays, and as the bytes to be written.
COPIES = 1
#: Spark keeps a base and deltas that weigh as much, of each version that it has not deleted yet.
STORED_VERSIONS = 2

#: Largest rate and number of keys: far beyond what there is, and numbers stay readable.
MAX_LOAD = 10**12
#: Growth of a step's state per key, between half the messages and all of them, from which the state is not full.
GROWTH = 1.05
#: Width of the lines of a size.
WIDTH = 80

#: Builds the sources of a run for a number of sensors (None: as the data has them) and of messages.
Sources = Callable[[int | None, int], Mapping[str, Any]]


@dataclass(frozen=True)
class StepState:
    """The state of a keyed step, per key, and how its number of keys follows that of the stream.

    Attributes
    ----------
    keys_per_key : float
        Keys of the step for each further key of the stream; 0 if there are as many for any stream.
    other_keys : float
        Keys that it has besides.
    memory_bytes, stored_bytes : float
        Bytes per key in memory, and in a checkpoint.
    records_per_key : float
        Records of each key of the step in the run with the fewest keys.
    growth_bytes : float
        Stored bytes by which each further record of a key added to its state there; 0 if it was full.
    """

    step: str
    keys_per_key: float
    other_keys: float
    memory_bytes: float
    stored_bytes: float
    records_per_key: float = 0.0
    growth_bytes: float = 0.0

    def keys(self, keys: int) -> float:
        """Return the number of keys of the step for that of the stream."""
        return self.other_keys + self.keys_per_key * keys


@dataclass(frozen=True)
class Calibration:
    """What was measured: CPU per message, memory without state, and the state of each keyed step.

    Attributes
    ----------
    runner : "local" or "spark"
    messages : int
        Messages of the largest run.
    keys : tuple of int
        Keys of the stream in each run; one number if the data decides.
    cpu_seconds : float
        CPU seconds per message, of all processes.
    batch_seconds : float
        Shortest micro-batch of Spark, in wall time; 0 in process.
    base_bytes, core_bytes : float
        Memory without state: once (in process, or the JVM of an executor), and of the Python processes of each core.
    steps : tuple of StepState
    gaps : tuple of str
        What the figures lack, in words: records that steps rejected, and sources without records.
    """

    runner: str
    messages: int
    keys: tuple[int, ...]
    cpu_seconds: float
    batch_seconds: float
    base_bytes: float
    core_bytes: float
    steps: tuple[StepState, ...]
    gaps: tuple[str, ...] = ()


@dataclass(frozen=True)
class Size:
    """A deployment: what it needs, for which load, and from which measurements.

    Attributes
    ----------
    cores, partitions, executors : int
        Partitions and executors are 1 in process.
    memory_bytes : int
        Of all processes together.
    state_bytes, checkpoint_bytes : int
        State in memory, and on disk.
    utilization : float
        Share of the cores that the load takes.
    """

    flow: str
    runner: str
    rate: float
    keys: int
    head_room: float
    cores: int
    partitions: int
    executors: int
    memory_bytes: int
    state_bytes: int
    checkpoint_bytes: int
    utilization: float
    measured: Calibration
    extrapolated: tuple[str, ...] = field(default=())

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON-able data."""
        return asdict(self)

    def __str__(self) -> str:
        m = self.measured
        where = "in one process" if self.runner == "local" else "on Spark"
        lines = [
            f"dataflow {self.flow!r} {where}, {_number(self.rate)} messages/s, {self.keys:,} keys, "
            f"head room {self.head_room:g}",
            f"  cores       {self.cores:,}   ({self.utilization:.0%} busy)",
        ]
        if self.runner == "spark":
            lines += [
                f"  partitions  {self.partitions:,}",
                f"  executors   {self.executors:,} of up to {EXECUTOR_CORES} cores",
            ]
        lines += [
            f"  memory      {_bytes(self.memory_bytes)}, of it state {_bytes(self.state_bytes)}",
            f"  checkpoint  {_bytes(self.checkpoint_bytes)}",
            f"measured here, with {m.messages:,} messages"
            + (f" of {' and '.join(f'{n:,}' for n in m.keys)} keys" if m.keys else ""),
            f"  {_number(1 / m.cpu_seconds)} messages/s per core ({m.cpu_seconds * 1e6:.3g} µs of CPU each)",
            f"  {_bytes(m.base_bytes)} without state"
            + (f", and {_bytes(m.core_bytes)} of Python processes per core" if m.core_bytes else ""),
        ]
        if m.batch_seconds:
            lines.append(f"  {m.batch_seconds:.2g} s for the shortest micro-batch; the size is for one each second")
        for one in m.steps:
            lines.append(
                f"  {one.step}: {one.memory_bytes:,.0f} bytes per key, {one.stored_bytes:,.0f} stored; "
                f"{one.keys(self.keys):,.0f} keys here"
            )
        if m.gaps:
            lines += ["not measured", *(f"  {text}" for text in m.gaps)]
        lines += ["extrapolated", *(f"  {text}" for text in self.extrapolated)]
        return "\n".join(
            part
            for line in lines
            for part in textwrap.wrap(
                line, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
            )
        )


def _number(number: float) -> str:
    """Write a number.

    >>> _number(7000), _number(0.25), _number(12.5)
    ('7,000', '0.25', '12.5')
    """
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _bytes(number: float) -> str:
    """Write a number of bytes.

    >>> _bytes(0), _bytes(2048), _bytes(1010 << 20), _bytes(3.5 * 2**30), _bytes(5 << 60)
    ('none', '2 KiB', '0.986 GiB', '3.5 GiB', '5,120 PiB')
    """
    if not number:
        return "none"
    for power, unit in ((50, "PiB"), (40, "TiB"), (30, "GiB"), (20, "MiB")):
        if number >= 1000 << power - 10:
            return f"{_number(number / (1 << power))} {unit}"
    return f"{number / 1024:.3g} KiB"


def check_load(rate: float, keys: int, head_room: float) -> None:
    """Raise :class:`ConfigError` for a load that none can have."""
    if not (math.isfinite(rate) and rate > 0):
        raise ConfigError(f"--rate must be a number > 0, got {rate!r}")
    if keys < 1:
        raise ConfigError(f"--keys must be a whole number >= 1, got {keys!r}")
    if not (math.isfinite(head_room) and head_room >= 1):
        raise ConfigError(f"--head-room must be a number >= 1, got {head_room!r}")
    for name, number, most in (("rate", rate, MAX_LOAD), ("keys", keys, MAX_LOAD), ("head-room", head_room, 1000)):
        if number > most:
            raise ConfigError(f"--{name} must be at most {most:,}, got {number:,}")


def size_for(name: str, measured: Calibration, rate: float, keys: int, head_room: float = 2.0) -> Size:
    """Size a deployment from measurements.

    Parameters
    ----------
    name : str
        Name of the dataflow.
    measured : Calibration
    rate : float
        Messages per second.
    keys : int
        Keys of the stream, such as sensors.
    head_room : float >= 1, default 2
        How many times the load the cores and the memory for state suffice for.

    Examples
    --------
    >>> step = StepState("mean", keys_per_key=5, other_keys=0, memory_bytes=100, stored_bytes=60)
    >>> measured = Calibration("local", 10_000, (10, 20), 50e-6, 0.0, 200e6, 0.0, (step,))
    >>> size = size_for("flow", measured, rate=30_000, keys=1000)
    >>> size.cores, size.state_bytes, size.utilization
    (3, 500000, 0.5)
    """
    check_load(rate, keys, head_room)
    spark = measured.runner == "spark"
    # planning and committing a micro-batch costs the same for few and many messages
    load = rate * measured.cpu_seconds + min(1.0, measured.batch_seconds / TRIGGER_SECONDS)
    cores = max(1, math.ceil(load * head_room - 1e-9))
    executors = math.ceil(cores / EXECUTOR_CORES) if spark else 1
    state = sum(step.keys(keys) * step.memory_bytes for step in measured.steps)
    stored = sum(step.keys(keys) * step.stored_bytes for step in measured.steps)
    memory = measured.base_bytes * executors + measured.core_bytes * cores
    memory += head_room * (state + COPIES * stored)
    notes = []
    if measured.steps and keys not in measured.keys:
        notes.append(f"the state of {keys:,} keys, in proportion to the measured ones")
    if not measured.steps:
        notes.append("nothing for more keys: no step has kept state")
    for step in measured.steps:
        if step.growth_bytes:
            notes.append(
                f"{step.step}: its state still grew after {_number(step.records_per_key)} records of each key, by "
                f"{_number(step.growth_bytes)} stored bytes per record: a window that holds more takes more"
            )
    if measured.steps and measured.keys:
        each = measured.messages / measured.keys[-1]
        notes.append(f"state per key, as after {_number(each)} messages of each: long windows hold more later")
    elif measured.steps:
        notes.append("state per key, as the records given leave it: with more records of each key it may be larger")
    here = os.cpu_count() or 1
    if not spark and cores > here:
        notes.append(f"more cores than the {here} of this machine; --runner spark has the size for several machines")
    if cores > 1:
        notes.append(f"{cores:,} cores, as {cores:,} times one; skewed keys, a slow sink and the network take more")
    notes.append("the rate, as on this machine: another processor has another one")
    return Size(
        flow=name,
        runner=measured.runner,
        rate=rate,
        keys=keys,
        head_room=head_room,
        cores=cores,
        partitions=cores if spark else 1,
        executors=executors,
        memory_bytes=round(memory),
        state_bytes=round(state),
        checkpoint_bytes=round(stored * (STORED_VERSIONS if spark else 1)),
        utilization=load / cores,
        measured=measured,
        extrapolated=tuple(notes),
    )


# -- measuring -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Run:
    """One run in process: messages, CPU, and of each keyed step keys, bytes in memory, bytes stored, and records."""

    messages: int
    cpu_seconds: float
    steps: Mapping[str, tuple[int, int, int]]
    gaps: tuple[str, ...]
    records: Mapping[str, int]


def calibrate(
    flow: Dataflow, sources: Sources, keys: Sequence[int], messages: int, runner: Literal["local", "spark"] = "local"
) -> Calibration:
    """Measure a dataflow with short runs, on one core.

    Parameters
    ----------
    flow : Dataflow
    sources : function
        Makes the sources for a number of keys and messages.
    keys : sequence of int
        Two numbers of keys with which to run, or none if the data decides.
    messages : int
        Messages of a run.
    runner : "local" or "spark", default "local"
    """
    with tempfile.TemporaryDirectory(prefix="riot_ops-plan-") as folder, _without_warnings():
        sizes: list[int | None] = [*keys] or [None]
        _run(flow, sources(sizes[0], max(1, messages // 10)), Path(folder))  # compiles the kernels
        half = _run(flow, sources(sizes[0], max(1, messages // 2)), Path(folder)) if keys else None
        runs = [_run(flow, sources(size, messages), Path(folder)) for size in sizes]
        steps = _steps(runs, keys, half)
        base = float(_peak_bytes() - sum(held for _, held, _ in runs[-1].steps.values()))
        read = runs[-1].messages
        if not read:
            raise ConfigError("the size of a deployment needs records to measure with, and there are none")
        cpu = min(run.cpu_seconds / run.messages for run in runs)
        if runner == "local":
            return Calibration("local", read, tuple(keys), cpu, 0.0, base, 0.0, steps, runs[-1].gaps)
        per_message, batch, jvm, python = _on_spark(flow, sources, sizes[-1], messages)
    # Spark runs the same steps, so that less than in process is an error of measurement
    return Calibration("spark", read, tuple(keys), max(per_message, cpu), batch, jvm, python, steps, runs[-1].gaps)


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Keep the runs from warning of rejected records each time: the size says it once."""
    log = logging.getLogger("riot_ops")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(level)


def _steps(runs: Sequence[_Run], keys: Sequence[int], half: _Run | None) -> tuple[StepState, ...]:
    found = []
    most = max((held for held, _, _ in runs[-1].steps.values()), default=0)
    for step, (held, memory, stored) in runs[-1].steps.items():
        if not held:
            continue
        if len(keys) > 1:
            fewer = runs[0].steps[step][0]
            slope = (held - fewer) / (keys[-1] - keys[0])
            other = held - slope * keys[-1]
        else:  # the step with the most keys has as many as the stream
            slope, other = held / most, 0.0
        each, growth = (0.0, 0.0) if half is None else _growth(step, half, runs[0])
        found.append(StepState(step, slope, max(0.0, other), memory / held, stored / held, each, growth))
    return tuple(found)


def _growth(step: str, half: _Run, run: _Run) -> tuple[float, float]:
    """Return the records of each key of a step, and by how much each of the last ones let its state grow."""
    (before, _, less), (held, _, stored) = half.steps.get(step, (0, 0, 0)), run.steps[step]
    if not before or not held or before * 1.1 < held:  # with new keys the state per key says nothing
        return run.records.get(step, 0) / max(held, 1), 0.0
    each = run.records.get(step, 0) / held
    further = each - half.records.get(step, 0) / before
    grown = stored / held - less / before
    return each, grown / further if further > 0 and stored / held > GROWTH * less / before else 0.0


def _run(flow: Dataflow, sources: Mapping[str, Any], folder: Path) -> _Run:
    engines: list[Engine] = []

    def note(engine: Engine, *_: Any) -> None:
        if engine not in engines:
            engines.append(engine)

    before = Engine.on_step
    Engine.on_step = staticmethod(note)
    began = time.process_time()
    try:
        result = flow.run(sources, sinks=DiscardSink(), cores=1, checkpoint=folder / "checkpoint")
    finally:
        Engine.on_step = before
        shutil.rmtree(folder / "checkpoint", ignore_errors=True)
    seconds = time.process_time() - began
    states = {name: state for engine in engines for name, state in engine.states.items()}
    read = {step: taken for step, (taken, _) in result.summary.steps.items()}
    held = {n: (state.size, state.nbytes, len(state.snapshot())) for n, state in states.items()}
    return _Run(result.summary.messages, seconds, held, _gaps(result.summary, sources), read)


def _gaps(summary: Summary, sources: Mapping[str, Any]) -> tuple[str, ...]:
    """Say in words what a run has not processed."""
    found = [f"{text.partition(':')[0]}: what they cost, and their state" for text in summary.warnings()]
    found += [
        f"the source {name!r} and its steps: it had no records; --input {name}=FILE gives it some"
        for name, source in sources.items()
        if isinstance(source, pa.Table) and not source.num_rows
    ]
    return tuple(found)


class DiscardSink(Sink):
    """Drops the results where they arise: a driver would have to hold those of all workers."""

    def writer(self, batch_id: int, partition: int) -> Writer:
        return _DiscardWriter()


class _DiscardWriter(Writer):
    def write(self, stream: str, batch: pa.RecordBatch) -> None:
        pass

    def finish(self) -> Message:
        return {}


def _peak_bytes() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _on_spark(flow: Dataflow, sources: Sources, keys: int | None, messages: int) -> tuple[float, float, float, float]:
    """Return CPU per message, the shortest micro-batch, and the memory of the JVM and of the Python processes."""
    from riot_ops.measure.processes import ProcessTree
    from riot_ops.spark import session

    tree = ProcessTree(every="1h")
    spark = session(1, memory="1g", app_name="riot-ops plan")
    try:
        spent, counts, batches = [], [], []
        fewer = max(1, messages // 4)
        for n in (fewer, fewer, fewer, messages):  # in the first ones Python and the JVM compile
            before = tree.cpu_seconds()
            query = flow.start(spark, sources(keys, n), sinks=DiscardSink(), max_records=max(1, n // 2))
            counts.append(query.wait("10min").messages)
            spent.append(tree.cpu_seconds() - before)
            batches += [one["durationMs"]["triggerExecution"] / 1000 for one in query.streaming.recentProgress]
        memory = tree.memory_by_program()
    finally:
        spark.stop()
    # if the runs differ in their messages, the start of a query does not count
    per_message = spent[-1] / counts[-1]
    if counts[-1] > counts[-2]:
        per_message = (spent[-1] - spent[-2]) / (counts[-1] - counts[-2])
    python = sum(size for name, size in memory if "java" not in name)
    jvm = sum(size for name, size in memory if "java" in name)
    return per_message, min(batches), float(max(jvm, HEAP_BYTES)), float(python)

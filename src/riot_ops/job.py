"""What ``riot-ops run`` does: build an application, feed it, watch it, show the result."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.live import Live
from rich.table import Table

from riot_ops import dataflows, streams
from riot_ops import tasks as t
from riot_ops.connectors.blob import AZURE_VARIABLE
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.riotbench.micro import micro_source
from riot_ops.dataflows.riotbench.pred import MODELS, UPDATES_SCHEMA
from riot_ops.embedded import Surroundings
from riot_ops.errors import ConfigError, MissingExtraError, did_you_mean
from riot_ops.metrics import Summary
from riot_ops.schema import stream_schema
from riot_ops.sink import MemorySink, ParquetSink
from riot_ops.source import MemorySource, Source
from riot_ops.streams.catalog import catalog_entry
from riot_ops.streams.pace import paced as at_pace
from riot_ops.task import find_task

__all__ = ["Job", "MicroJob"]

PLOTTED = 300
#: Messages per micro-batch on Spark, so that a run shows how it goes.
BATCH = 100_000
LINE_SECONDS = 2.0


@dataclass
class Job:
    """One run of an application; the fields are the options of ``riot-ops run``."""

    name: str
    stream: str = "city"
    messages: int = 200_000
    sensors: int = 1_000
    input: Path | None = None
    runner: str = "spark"
    out: Path = Path("out")
    rate: float | None = None
    speed: float | None = None
    curve: str | None = None
    form: str = "paper"
    batch: int | None = None
    trigger: str | None = None
    cores: int | None = None
    seed: int = 0
    plot: bool = True
    table: str | None = None
    models: str | None = None
    broker: str | None = None
    servers: bool = False
    summary: Summary = field(default_factory=Summary)

    #: How long a batch in process waits for more records.
    linger_s: ClassVar[float] = 0.0

    def __post_init__(self) -> None:
        known = (*dataflows.BUILDERS, "learn", "micro")  # the latter two are jobs of their own
        if self.name not in dataflows.BUILDERS:
            raise ConfigError(
                f"unknown application {self.name!r}; known are {', '.join(known)}{did_you_mean(self.name, known)}"
            )
        self._check_runner()
        stream_schema(self.stream)
        if self.form not in ("paper", "plots"):
            raise ConfigError(f"--form must be paper or plots, got {self.form!r}")

    def _check_runner(self) -> None:
        if self.runner not in ("spark", "local"):
            raise ConfigError(f"--runner must be spark or local, got {self.runner!r}")
        if self.curve is not None:
            catalog_entry(self.curve)
            if self.rate is not None:
                raise ConfigError(f"--curve {self.curve} and --rate {self.rate:g} both set the pace: give one of them")

    def run(self, console: Console) -> Summary:
        """Run it, with progress and a summary on the console."""
        try:
            self.out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"--out must be a folder that can be written, got {str(self.out)!r}: {error}") from None
        with self._servers(console):
            source = self.sources(console)
            flow = self.dataflow(self._around)
            console.print(f"[bold]{self.name}[/bold] over {self.input_text()}, runner {self.runner}")
            with console.status("compiling kernels …"):
                self._warm_up()
            progress = _Progress(console)
            try:
                if self.runner == "local":
                    self._run_local(flow, source, progress)
                else:
                    self._run_spark(flow, source, progress, console)
            except KeyboardInterrupt:
                console.print("interrupted: what has been processed is kept")
                raise
            finally:
                progress.close()
                self.show(console)
        if self.plot:
            self.draw(console)
        return self.summary

    # -- parts -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _servers(self, console: Console) -> Iterator[None]:
        """Mosquitto and Azurite on free ports, and the stores in them, where that is wanted."""
        with contextlib.ExitStack() as stack:
            if self.servers:
                from riot_ops.testing.services import Azurite, Mosquitto

                with console.status("starting Mosquitto and Azurite …"):
                    azurite, mosquitto = stack.enter_context(Azurite()), stack.enter_context(Mosquitto())
                os.environ[AZURE_VARIABLE] = azurite.connection
                stack.callback(os.environ.pop, AZURE_VARIABLE)
                self.table, self.models, self.broker = "azure-table://", "azure-blob://models", mosquitto.url
                console.print(f"Mosquitto at {mosquitto.url}, Azurite at ports {', '.join(map(str, azurite.ports()))}")
            if self.name in ("etl", "pred", "train"):
                self._around.create()
            yield

    def beside(self, spark: Any = None) -> contextlib.AbstractContextManager[None]:
        """What runs at the same time."""
        return contextlib.nullcontext()

    def source(self, *, paced: bool) -> Source:
        """The source that the options describe."""
        if self.input is not None:
            source = streams.replay(self.input)
        else:
            source = streams.generate(self.stream, self.sensors, messages=self.messages, seed=self.seed)
        return self._at_pace(source) if paced else source

    def _at_pace(self, source: Source) -> Source:
        if self.curve is None:
            return at_pace(source, self.speed, self.rate)
        entry = catalog_entry(self.curve)
        return at_pace(source, None, None, entry.curve(self.speed or entry.speedup))

    def input_text(self) -> str:
        """What goes in, in words."""
        generated = f"{self.messages:,} messages of {self.sensors:,} generated {self.stream} sensors"
        return str(self.input) if self.input is not None else generated

    def sources(self, console: Console) -> Source | pa.Table | dict[str, Source | pa.Table]:
        """What the application reads; for that, a table is filled and models are trained where there are none."""
        if self.name in ("etl", "stats"):
            return self.source(paced=True)
        around = self._around
        if self.name == "train":
            with console.status("storing readings to learn from …"):
                return around.load(self.source(paced=False))
        if not around.trained():
            with console.status("training the first models …"):
                around.train().run(around.load(self.source(paced=False)), sinks=MemorySink())
        news = UPDATES_SCHEMA.empty_table() if self.broker is None else around.news()
        return {MODELS: news, self.stream: self.source(paced=True)}

    @property
    def _around(self) -> Surroundings:
        return Surroundings(self.stream, self.out, self.table, self.models, self.broker)

    def dataflow(self, around: Surroundings) -> Dataflow:
        """The application among its stores, its Bloom filter trained on the sensors of the source."""
        if self.name == "etl":
            return around.etl(self._sensors())
        if self.name == "train":
            return around.train()
        if self.name == "pred":
            return around.pred(self.cores or os.cpu_count() or 1, self.form)
        return around.stats(self._sensors(), self.form)

    def _warm_up(self) -> None:
        """Run over a few records among other stores, so that the kernels are compiled once and not in every worker."""
        if self.name == "train":
            return
        source = self.source(paced=False)
        start = source.initial()
        first = [b for split in source.splits(start, source.latest(start, 100), 1) for b in source.read(split)]
        if not first:
            return
        records = MemorySource(pa.Table.from_batches(first))
        news = {MODELS: UPDATES_SCHEMA.empty_table(), self.stream: records}
        with tempfile.TemporaryDirectory(prefix="riot_ops-") as folder:
            around = Surroundings(self.stream, Path(folder), "memory", self._around.models_url, "memory://warm-up")
            self.dataflow(around).run(source=news if self.name == "pred" else records, sinks=MemorySink())

    def _sensors(self) -> list[str]:
        ids: list[pa.Array] = []
        for batch in self._parsed(t.SenMLParse(schema=self.stream, layout="wide")):
            ids.append(pc.unique(batch.column("sensor_id")))
        known: list[str] = pc.unique(pa.concat_arrays(ids)).drop_null().to_pylist() if ids else []
        return known

    def _parsed(self, task: t.Task) -> Iterator[pa.RecordBatch]:
        source = self.source(paced=False)
        session = task.session()
        offset = source.initial()
        while (end := source.latest(offset, 65_536)) != offset:
            for split in source.splits(offset, end, 1):
                for batch in source.read(split):
                    yield session.push_batch(batch)
            offset = end
        source.close()

    def _run_local(self, flow: Dataflow, source: Any, progress: _Progress) -> None:
        def show(summary: Summary) -> None:
            self.summary = summary  # also that of a run which is interrupted
            progress.show(summary, "")

        with self.beside():
            self.summary = flow.run(
                source=source,
                sinks=ParquetSink(self.out),
                overwrite=True,
                batch_size=self.batch or 65_536,
                linger_s=self.linger_s,
                progress=show,
            ).summary

    def _run_spark(self, flow: Dataflow, source: Any, progress: _Progress, console: Console) -> None:
        log = self.out / "spark.log"
        with _stderr_to(log), console.status("starting Spark …"):
            from riot_ops.runtime.spark import session

            spark = session(cores=self.cores)
        console.print(f"Spark {spark.version}, {spark.sparkContext.master}, log in {log}")
        query = flow.start(
            spark, source=source, out=self.out, trigger=self.trigger, overwrite=True, max_records=self.batch or BATCH
        )

        def show(running: Any) -> None:
            last = running.micro_batches[-1]["durations_ms"]["triggerExecution"] if running.micro_batches else None
            progress.show(running.summary, f"micro-batch {last} ms" if last is not None else "first micro-batch …")

        try:
            with self.beside(spark):
                query.wait(progress=show)
        finally:
            self.summary = query.summary
            spark.stop()

    # -- result ------------------------------------------------------------------------------------

    def show(self, console: Console) -> None:
        """The summary as a table."""
        s = self.summary
        p50, p95, p99 = s.latency.quantiles(0.5, 0.95, 0.99)
        console.print(f"{self.name}: {s.messages:,} messages in {s.seconds:.1f} s, {s.throughput:,.0f} messages/s")
        table = Table()
        table.add_column("result")
        table.add_column("value", justify="right")
        for stream in sorted(s.rows):
            table.add_row(f"records in {stream}", f"{s.rows[stream]:,}")
        for share, value in (("p50", p50), ("p95", p95), ("p99", p99)):
            table.add_row(f"latency {share}", "–" if math.isnan(value) else f"{value * 1000:,.1f} ms")
        table.add_row("dead letters", f"{s.errors:,}")
        for reason, n in sorted(s.reasons.items()):
            table.add_row(f"  {reason}", f"{n:,}")
        table.add_row("batches", f"{s.batches:,}")
        console.print(table)
        console.print(f"results: {self.out}/<stream>/*.parquet")

    def draw(self, console: Console) -> None:
        """Of STATS a PNG of one sensor's raw, smoothed and predicted values."""
        if self.name != "stats":
            return
        key = ("sensor_id", "obs_type")
        flow = Dataflow("one-sensor")
        parse = t.SenMLParse(schema=self.stream, fields=stream_schema(self.stream).numeric[:1])
        raw = flow.source("rows", schema=parse.output_schema(self.source(paced=False).schema))
        smooth = raw.to(t.KalmanFilter(by=key), id="smooth")
        flow.sink("out", smooth, smooth.to(t.SlidingRegression(by=key), id="predicted"))
        rows = self._one_sensor(parse)
        if rows is None or rows.num_rows < 12:
            console.print("no picture: no sensor has enough values")
            return
        result = flow.run(source=rows, sinks=MemorySink())
        path = self.out / f"{self.name}.png"
        _draw(path, rows, result["smooth"], result["predicted"])
        console.print(f"picture: {path}")

    def _one_sensor(self, parse: t.SenMLParse) -> pa.Table | None:
        """The observations of the sensor with the most messages at the start."""
        found: list[pa.RecordBatch] = []
        chosen: Any = None
        rows = 0
        for batch in self._parsed(parse):
            if chosen is None:
                modes = pc.mode(pc.dictionary_encode(batch.column("sensor_id")).indices, 1)
                if not len(modes):
                    continue
                chosen = pc.unique(batch.column("sensor_id"))[modes[0]["mode"].as_py()]
            found.append(batch.filter(pc.equal(batch.column("sensor_id"), chosen)))
            rows += found[-1].num_rows
            if rows >= PLOTTED:
                break
        return pa.Table.from_batches(found).slice(0, PLOTTED) if found else None


@dataclass
class MicroJob(Job):
    """A run of one task between a source and a sink; see :func:`riot_ops.dataflows.micro`."""

    task: str = "KAL"

    def __post_init__(self) -> None:
        self._check_runner()
        if self.input is not None:
            raise ConfigError("micro generates its input; run an application with --input, or a dataflow of your own")
        self.name, self.task = f"micro-{self.task.lower()}", find_task(self.task).code
        self.plot = False

    def source(self, *, paced: bool) -> Source:
        source = micro_source(self.task, self.messages)
        return self._at_pace(source) if paced else source

    def input_text(self) -> str:
        return f"{self.messages:,} messages for the task {self.task}"

    def sources(self, console: Console) -> Source:
        return self.source(paced=True)

    def dataflow(self, around: Surroundings) -> Dataflow:
        return dataflows.micro(self.task)


def _draw(path: Path, raw: pa.Table, smooth: pa.Table, predicted: pa.Table) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingExtraError("drawing a picture", "plot") from None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(11, 5), layout="constrained")
    times = raw["event_time"].to_pandas()
    axes.plot(times, raw["value"].to_pandas(), ".", color="#94a3b8", label="raw")
    axes.plot(smooth["event_time"].to_pandas(), smooth["value"].to_pandas(), color="#2563eb", label="smoothed (KAL)")
    step = times.diff().median()
    low, high = np.nanpercentile(raw["value"].to_numpy(), [2, 98])
    margin = 0.5 * (high - low) or 1.0
    axes.set_ylim(low - margin, high + margin)  # a fault must not flatten the rest
    for row, label in zip(predicted.to_pylist()[::25], ["predicted (SLR)"] + [None] * PLOTTED, strict=False):
        ahead = [row["event_time"] + step * (i + 1) for i in range(len(row["predictions"]))]
        axes.plot(ahead, row["predictions"], color="#dc2626", linewidth=1, label=label)
    axes.set_title(f"{raw['obs_type'][0]} of sensor {raw['sensor_id'][0]}")
    axes.set_xlabel("event time (UTC)")
    axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


class _Progress:
    """A line that tells how the run goes: live on a terminal, now and then elsewhere."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live("", console=console, refresh_per_second=4, transient=True) if console.is_terminal else None
        self._last = (time.monotonic(), 0)
        self._speed = 0.0
        if self._live is not None:
            self._live.start()

    def show(self, summary: Summary, extra: str) -> None:
        then, messages = self._last
        now = time.monotonic()
        if now - then < (0.5 if self._live is not None else LINE_SECONDS):
            return
        self._speed = (summary.messages - messages) / (now - then)
        self._last = now, summary.messages
        blocks = summary.latency.blocks()
        lag = f"{blocks[-1][1] / 1e6:.2f} s" if blocks else "–"
        line = (
            f"{summary.messages:>12,} messages  {self._speed:>10,.0f}/s  lag {lag}  "
            f"dead letters {summary.errors:,}  {extra}"
        )
        if self._live is not None:
            self._live.update(line)
        elif summary.messages:
            self._console.print(line, soft_wrap=True)

    def close(self) -> None:
        if self._live is not None:
            self._live.stop()


@contextlib.contextmanager
def _stderr_to(path: Path) -> Iterator[None]:
    """Let programs started meanwhile (the JVM) write their standard error to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(path, "wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)

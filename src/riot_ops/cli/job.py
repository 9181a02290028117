"""The job of ``riot-ops run``: build an application, run it with progress, and show the results."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import math
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Table

from riot_ops import dataflows
from riot_ops import tasks as t
from riot_ops.cli.feed import Feed
from riot_ops.cli.live_page import LivePage
from riot_ops.cli.mqtt_feed import MQTTFeed, split_login
from riot_ops.cli.progress import Progress, announce_interrupts, redirect_stderr, run_in_thread, show_log
from riot_ops.cli.riotbench_plots import draw_sensor
from riot_ops.cli.run_folder import RunFolder, earlier_runner
from riot_ops.cli.runner_choice import MAX_LOCAL_MESSAGES, RUNNERS, choose_runner, is_small
from riot_ops.cli.settings import place_to_read
from riot_ops.connectors.stores.azure import AZURE_VARIABLE
from riot_ops.core.buffering import AVAILABLE_NOW, Buffering, check_target, check_trigger
from riot_ops.core.checks import check_encoding, duration_seconds
from riot_ops.core.errors import ConfigError, MissingExtraError, did_you_mean, escape_control, excerpt
from riot_ops.core.file_paths import absolute_path
from riot_ops.core.file_sink import FileSink
from riot_ops.core.interrupts import TERMINATED, handle_termination
from riot_ops.core.paths import local_path, make_folder, safe_file_name
from riot_ops.core.schema import ERRORS_STREAM
from riot_ops.core.secret import Secret
from riot_ops.core.sink import MemorySink
from riot_ops.core.source import Source
from riot_ops.core.storage import Address, is_address
from riot_ops.core.text_sinks import FILE_SINKS
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.local_services import LocalServices
from riot_ops.dataflows.riotbench.pred import MODELS, UPDATES_SCHEMA
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.measure.metrics import Summary
from riot_ops.runtime.restart import Restart, RestartReport, check_restart

__all__ = ["Job"]

#: Messages per micro-batch on Spark: few enough that a run shows its progress.
BATCH = 100_000
#: Options that an application refuses, because it has no use for them.
UNSUPPORTED_OPTIONS = {"stats": ("table", "models"), "etl": ("models",)}
#: Files and folders that an application may write beside its streams.
RUN_ARTIFACTS = (
    "store.db",
    "models",
    "broker",
    "spool",
    "mqtt",
    "annotations.txt",
    "known_sensors.bloom",
    "charts",
    "spark.log",
)


#: Options that say how to read the broker of ``--mqtt``.
MQTT_OPTIONS = ("topic", "client_id", "ca_file", "certificate", "private_key")

#: Spark's own page, for reading; the session serves it on loopback.
UI_SETTINGS = {"spark.ui.enabled": "true", "spark.ui.killEnabled": "false"}
#: What an interrupted run says that has committed nothing.
NONE_KEPT = "no results of this run are kept"


@dataclass
class Job:
    """One run of an application; the fields are the options of ``riot-ops run``."""

    name: str
    stream: str = "city"
    messages: int = 200_000
    sensors: int = 1_000
    input: Path | Address | None = None
    format: str | None = None
    encoding: str = "utf-8"
    time: str | None = None
    key: str | None = None
    mqtt: str | None = None
    topic: tuple[str, ...] = ()
    client_id: str | None = None
    ca_file: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    runner: str = "auto"
    out: Path | Address | None = None
    out_format: str = "parquet"
    overwrite: bool = False
    checkpoint: Path | Address | None = None
    restart: Restart = "same"
    rate: float | None = None
    speed: float | None = None
    curve: str | None = None
    form: str | None = None
    batch_size: int | None = None
    buffering: str | None = None
    trigger: str | None = None
    target_duration: str | None = None
    cores: int | None = None
    seed: int = 0
    plot: bool = True
    table: str | None = None
    models: str | None = None
    broker: str | None = None
    servers: bool = False
    time_unit: str | None = None
    read: tuple[str, ...] = ()
    ticks: str | None = None
    spans: int | None = None
    start: int | None = None
    verbose: bool = False
    log_json: str | None = None
    live: str | None = None
    live_report: Path | None = None
    otel: bool = False
    summary: Summary = field(default_factory=Summary)
    #: Streams that end in a sink.
    _sink_streams: set[str] = field(default_factory=set, init=False, repr=False)
    _page: LivePage = field(
        default_factory=lambda: LivePage(None, None, Console(quiet=True)), init=False, repr=False, compare=False
    )
    #: Which runner ``auto`` stands for, and why, in words.
    _chosen: str = field(default="", init=False, repr=False)
    #: How a run in process gathers records without --buffering, and options that this kind of job refuses.
    default_buffering: ClassVar[Buffering | None] = None
    unsupported_options: ClassVar[tuple[str, ...]] = ()
    #: Whether this kind of job reads the files of its results.
    reads_results: ClassVar[bool] = False
    #: Whether this kind of job may read messages of a broker.
    reads_mqtt: ClassVar[bool] = True

    def __post_init__(self) -> None:
        known = (*dataflows.BUILDERS, "learn", "micro")  # this class runs RIoTBench's, subclasses the others
        if self.name not in dataflows.RIOTBENCH:
            raise ConfigError(
                f"unknown application {self.name!r}; known are {', '.join(known)} and JSON files of dataflows"
                f"{did_you_mean(self.name, known)}"
            )
        forms = dataflows.FORMS.get(self.name, ())
        if self.form is not None and self.form not in forms:
            raise ConfigError(f"--form must be {' or '.join(forms) or 'left out'} for {self.name}, got {self.form!r}")
        self._prepare()
        if self.format == "csv" and self.name not in ("stats", "etl"):
            raise ConfigError(f"--format csv is for stats and etl; {self.name} reads SenML")
        if self.feed.has_custom_columns and self.name != "stats":
            raise ConfigError(
                f"--time and --key are for stats; {self.name} needs the columns of the stream {self.stream}: "
                f"{', '.join(self.feed.schema.columns)}"
            )

    def _prepare(self) -> None:
        """Check the options that all kinds of jobs share, before anything is written."""
        for option in (*self.unsupported_options, *UNSUPPORTED_OPTIONS.get(self.name, ())):
            if (value := getattr(self, option)) != getattr(Job, option):
                raise ConfigError(f"--{option.replace('_', '-')} is not for {self.name}, got {value!r}; leave it out")
        self._check_mqtt()
        if self.input is not None:
            self.input = place_to_read(str(self.input), "--input")
        if self.out is not None:
            self.out = _place(self.out, "--out")
        self._choose_runner()
        if self.checkpoint is not None:  # that of Spark is Spark's own
            place = _place if self.runner == "local" else local_path
            self.checkpoint = place(str(self.checkpoint), "--checkpoint")
        if isinstance(self.out, Address) and self.reads_results:
            raise ConfigError(f"--out must be a folder for {self.name}, which reads its results, got {self.out}")
        for option in ("ticks", "spans", "start"):
            if getattr(self, option) is not None and self.name != "train":
                raise ConfigError(f"--{option} is for train, got {self.name}; leave it out")
        check_restart(self.restart, self.checkpoint)
        if self.out_format not in FILE_SINKS:
            raise ConfigError(f"--out-format must be {' or '.join(FILE_SINKS)}, got {self.out_format!r}")
        if self.buffering not in (None, *Buffering.PRESETS):
            raise ConfigError(f"--buffering must be one of {', '.join(Buffering.PRESETS)}, got {self.buffering!r}")
        if self.encoding != Job.encoding:
            check_encoding(self.encoding, of_lines=True, name="--encoding")
            if not self._has_input:
                raise ConfigError("--encoding needs --input: generated messages are UTF-8")
        check_trigger(self.trigger, AVAILABLE_NOW)
        for option, value in (("trigger", self.trigger), ("target-duration", self.target_duration)):
            if value is not None and self.runner == "local":
                raise ConfigError(
                    f"--{option} is for --runner spark, got {value!r}; for --runner local use --buffering"
                )
        check_target(
            None if self.target_duration is None else duration_seconds("--target-duration", self.target_duration),
            self.batch_size or BATCH,
        )
        if self.runner == "spark" and importlib.util.find_spec("pyspark") is None:
            raise MissingExtraError("--runner spark (--runner local does without)", "spark")
        self.feed = self._feed()

    def _choose_runner(self) -> None:
        """Replace the runner ``auto`` by one of the two."""
        if self.runner not in RUNNERS:
            raise ConfigError(f"--runner must be {', '.join(RUNNERS[:-1])} or {RUNNERS[-1]}, got {self.runner!r}")
        if self.runner != "auto":
            return
        asked = (name for name in ("trigger", "target_duration") if getattr(self, name) is not None)
        option = next((f"--{name.replace('_', '-')}" for name in asked), None)
        earlier, address = None, False
        if self.checkpoint is not None:
            place = _place(str(self.checkpoint), "--checkpoint")
            address = isinstance(place, Address)
            earlier = None if address else earlier_runner(self.results, place)
        self.runner, self._chosen = choose_runner(self._is_small, option=option, earlier=earlier, address=address)

    @property
    def _is_small(self) -> bool | None:
        """Whether the input takes no longer in process than Spark takes to start; None if nobody knows."""
        if self.mqtt is not None:
            return None
        return is_small(self._files_to_read) if self._has_input else self.messages <= MAX_LOCAL_MESSAGES

    @property
    def _files_to_read(self) -> list[Path | Address]:
        """Files, folders, patterns and addresses of the input."""
        assert self.input is not None
        return [self.input]

    @property
    def _arrives_over_time(self) -> bool:
        """Whether records arrive over time, so that the time since their arrival means something."""
        return self.mqtt is not None or any(one is not None for one in (self.rate, self.speed, self.curve))

    def _check_mqtt(self) -> None:
        """Check the options of ``--mqtt``, and take the login out of its address."""
        self._login: tuple[str | None, Secret | None] = None, None
        if self.mqtt is None:
            for option in MQTT_OPTIONS:
                if value := getattr(self, option):
                    raise ConfigError(f"--{option.replace('_', '-')} needs --mqtt, got {value!r}")
            return
        self.mqtt, username, password = split_login(self.mqtt)
        self._login = username, password
        if not self.reads_mqtt:
            raise ConfigError(f"--mqtt is for etl, stats, pred and a dataflow's JSON file, not for {self.name}")
        for option in ("input", "format", "encoding", "time", "key", "rate", "speed", "curve", "form", "seed"):
            if (value := getattr(self, option)) != getattr(Job, option):
                raise ConfigError(f"--{option} cannot be combined with --mqtt, got {str(value)!r}; leave it out")
        self.plot = False  # a plot reads the records again, and messages can be read only once

    @property
    def _has_input(self) -> bool:
        """Whether files are read instead of generated messages."""
        return self.input is not None

    def _feed(self) -> Feed:
        if self.mqtt is not None:
            return MQTTFeed(
                **self._feed_options,
                url=self.mqtt,
                topics=tuple(self.topic),
                username=self._login[0],
                password=self._login[1],
                ca_file=self.ca_file,
                certificate=self.certificate,
                private_key=self.private_key,
                client_id=self.client_id,
                limit=None if self.messages == Job.messages else self.messages,
                folder=self.folder,
            )
        if self.time_unit is not None:
            raise ConfigError(
                f"--time-unit is for a dataflow's JSON file; {self.name} takes milliseconds since 1970 or ISO 8601"
            )
        if self.read:
            raise ConfigError(f"--read is for a dataflow's JSON file, got {self.read[0]!r}; leave it out")
        return Feed(**self._feed_options)

    @property
    def _feed_options(self) -> dict[str, Any]:
        """The options that every feed has."""
        return {one.name: getattr(self, one.name) for one in fields(Feed)}

    @property
    def folder(self) -> Path:
        """The folder of the results, or with results in a store that of logs, stores and spools."""
        return self.out if isinstance(self.out, Path) else Path("out") / safe_file_name(self.name)

    @property
    def results(self) -> Path | Address:
        """Where the results are."""
        return self.out if isinstance(self.out, Address) else self.folder

    def sink(self) -> FileSink:
        """Return the sink of all streams."""
        return FILE_SINKS[self.out_format](self.results)

    def run(self, console: Console) -> Summary:
        """Run the job, with progress and a summary on the console; SIGTERM ends it with its own exit code."""
        with handle_termination() as terminated:
            try:
                return self._run(console)
            except KeyboardInterrupt:
                if terminated.is_set():
                    sys.exit(TERMINATED)
                raise

    def _run(self, console: Console) -> Summary:
        with (
            show_log(verbose=self.verbose, json_lines=self.log_json),
            announce_interrupts(console),
            LivePage(self.live, self.live_report, console, self.otel) as self._page,
        ):
            self.check()
            if self._chosen:
                console.print(self._chosen, soft_wrap=True)
            for option in ("messages", "sensors", "seed") if self.input is not None else ():
                if getattr(self, option) != getattr(Job, option):
                    message = f"--{option} is for generated messages; all messages of {self.input} are read"
                    logging.getLogger(__name__).warning(message)
            folder = RunFolder(
                self.results,
                {**self.run_identity(), "results": self.out_format},
                (*RUN_ARTIFACTS, f"{safe_file_name(self.name)}.png", "learn.png"),
                checkpoint=self.checkpoint,
                overwrite=self.overwrite,
                changed=self.restart == "compatible",
            )
            if isinstance(self.out, Address):
                make_folder(self.folder)
                console.print(f"logs and stores stay in {self.folder}", soft_wrap=True)
            with self._servers(console):
                source = self.sources(console)
                flow = self.dataflow(self.services)
                folder.add(set(flow.schemas()))
                how = f"runner {self.runner}{', continued' if folder.continued else ''}"
                line = escape_control(f"{self.name} over {self.describe_input()}, {how}")
                console.print(line, soft_wrap=True)
                with console.status("compiling kernels …"):
                    self._warm_up()
                self._run_with_progress(flow, source, None if folder.continued else self.total(), console)
            if self.plot and isinstance(self.out, Address):
                console.print("no plot: plots are drawn of results in a folder on this machine", soft_wrap=True)
            elif self.plot and self.out_format != "parquet":
                console.print("no plot: plots are drawn from Parquet files (--out-format parquet)", soft_wrap=True)
            elif self.plot:
                try:
                    self.draw(console)
                except MissingExtraError as error:  # the results are there, and complete
                    print(f"riot-ops: no plot: {error}", file=sys.stderr)
        return self.summary

    def _run_with_progress(self, flow: Dataflow, source: Any, total: int | None, console: Console) -> None:
        self._sink_streams = {edge.source for sink in flow.nodes_of_kind("sink") for edge in flow.inputs(sink.id)}
        progress = Progress(console, total, lag=self._arrives_over_time)
        ended = False
        try:
            run = self._run_local if self.runner == "local" else self._run_spark
            run(flow, source, progress, console)
            ended = True
        except KeyboardInterrupt:
            kept = f"the results of {self.summary.messages:,} messages are kept" if self.summary.messages else NONE_KEPT
            hint = f"; run the same command to continue from {self.checkpoint}" if self.checkpoint else ""
            console.print(f"interrupted: {kept}{hint}", soft_wrap=True)
            raise
        finally:
            progress.close()
            if ended or self.summary.messages:
                self.show(console)

    @property
    def all_rejected(self) -> bool:
        """Whether a step rejected all of its records, so that the run has no results."""
        rows, steps = self.summary.rows, self.summary.steps
        has_results = any(n for stream, n in rows.items() if stream != ERRORS_STREAM)
        return not has_results and any(rejected == taken > 0 for taken, rejected in steps.values())

    # -- parts -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _servers(self, console: Console) -> Iterator[None]:
        """Run Mosquitto and Azurite on free ports if --servers asks for them, and create the stores."""
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
                self.services.create()
            yield

    def concurrent_work(self, spark: Any = None) -> contextlib.AbstractContextManager[None]:
        """Return a context that runs other work during the run; here none."""
        return contextlib.nullcontext()

    def check(self) -> None:
        """Check the input before anything is written."""
        self.feed.check()

    def run_identity(self) -> dict[str, Any]:
        """Return what distinguishes this run from others: the application and all options that decide its input."""
        return {
            "application": self.name,
            "input": self.describe_input()
            if self.mqtt is not None
            else absolute_path(str(self.input))
            if self.input is not None
            else f"{self.sensors} {self.stream} sensors",
            "seed": self.seed,
            "form": self.form,
            "runner": self.runner,
        }

    def total(self) -> int | None:
        """Return the number of messages, if it is known."""
        return self.feed.total()

    def source(self, *, paced: bool) -> Source:
        """Return the source that the options describe."""
        return self.feed.source(paced=paced)

    def describe_input(self) -> str:
        """Describe the input in words."""
        return self.feed.describe()

    def sources(self, console: Console) -> Source | pa.Table | dict[str, Source | pa.Table]:
        """Return the application's sources; before PRED, fill the table and train models if there are none."""
        if self.name in ("etl", "stats"):
            return self.source(paced=True)
        services = self.services
        if not services.has_models():
            if self.mqtt is not None:
                raise ConfigError(
                    f"pred over --mqtt needs trained models, and {services.models_url} has none: --models"
                )
            with console.status("training the first models …"):
                services.train().run(services.load(self.source(paced=False)), sinks=MemorySink())
        updates = UPDATES_SCHEMA.empty_table() if self.broker is None else services.model_updates()
        return {MODELS: updates, self.stream: self.source(paced=True)}

    @property
    def services(self) -> LocalServices:
        return LocalServices(self.feed.schema.name, self.folder, self.table, self.models, self.broker)

    def dataflow(self, services: LocalServices) -> Dataflow:
        """Build the application with its stores, and its Bloom filter from the sensors of the source."""
        if self.name == "etl":
            return self.feed.adapt(services.etl(None if self.mqtt is not None else self._sensors()))
        if self.name == "pred":
            sensors = len(self._sensors()) if self.form == "paper" else 1
            return services.pred(self.cores or os.cpu_count() or 1, self.form, sensors)
        known = None if self.mqtt is not None else self._sensors()
        return self.feed.adapt(services.stats(known, self.form, self.feed.schema))

    def _warm_up(self) -> None:
        """Run over a few records with temporary stores to compile the kernels once and not in every worker."""
        first = self.feed.first(100)
        if first is None:
            return
        records = MemorySource(first)
        sources = {MODELS: UPDATES_SCHEMA.empty_table(), self.stream: records}
        with tempfile.TemporaryDirectory(prefix="riot_ops-") as folder:
            services = LocalServices(self.stream, Path(folder), "memory", self.services.models_url, "memory://warm-up")
            self.dataflow(services).run(source=sources if self.name == "pred" else records, sinks=MemorySink())

    def _sensors(self) -> list[str]:
        ids: list[pa.Array] = []
        for batch in self.feed.parsed(t.ParseSenML(schema=self.feed.schema, layout="wide")):
            ids.append(pc.unique(batch.column("sensor_id")))
        sensors: list[str] = pc.unique(pa.concat_arrays(ids)).drop_null().to_pylist() if ids else []
        return sensors

    def _run_local(self, flow: Dataflow, source: Any, progress: Progress, console: Console) -> None:
        def show(summary: Summary) -> None:
            self.summary = summary  # kept if the run is interrupted
            progress.show(summary)

        options: dict[str, Any] = {
            "sinks": self.sink(),
            "checkpoint": None if self.checkpoint is None else str(self.checkpoint),
            "restart": self.restart,
            "overwrite": self.overwrite,
            "batch_size": self.batch_size,
            "buffering": self.buffering or self.default_buffering,
            "cores": self.cores,
            "progress": show,
        }
        with self.concurrent_work():
            if not self._page.wanted:
                result = flow.run(source, **options)
                self.summary = result.summary
                _show_restart(result.restart, console)
                return
            run = flow.launch(source, **options)
            try:
                with self._page.watch(run):
                    run.wait()
            finally:
                self.summary = run.summary
        _show_restart(run.restart, console)

    def _run_spark(self, flow: Dataflow, source: Any, progress: Progress, console: Console) -> None:
        log = self.folder / "spark.log"

        def start() -> tuple[Any, Any]:
            from riot_ops.spark import session

            options: dict[str, Any] = {"settings": UI_SETTINGS} if self._page.served else {}  # the page links to it
            spark = session(cores=self.cores, **options)
            query = flow.start(
                spark,
                source=source,
                sinks=self.sink(),
                checkpoint=None if self.checkpoint is None else str(self.checkpoint),
                restart=self.restart,
                trigger=self.trigger,
                buffering=self.buffering,
                overwrite=self.overwrite,
                max_records=self.batch_size or BATCH,
                target_duration=self.target_duration,
            )
            return spark, query

        with redirect_stderr(log), console.status("starting Spark …"):
            spark, query = run_in_thread(start)  # so that Ctrl-C neither breaks a call into the JVM nor waits for it
        _show_restart(query.restart, console)
        console.print(f"Spark {spark.version}, {spark.sparkContext.master}, log in {log}", soft_wrap=True)

        def show(running: Any) -> None:
            last = running.micro_batches[-1]["durations_ms"]["triggerExecution"] if running.micro_batches else None
            progress.show(running.summary, f"micro-batch {last} ms" if last is not None else "first micro-batch …")

        try:
            watching = self._page.watch(query) if self._page.wanted else contextlib.nullcontext()
            with self.concurrent_work(spark), watching:
                query.wait(progress=show)
        finally:
            self.summary = query.summary
            spark.stop()

    # -- result ------------------------------------------------------------------------------------

    def show(self, console: Console) -> None:
        """Print the summary as a table."""
        s = self.summary
        p50, p95, p99 = s.latency.quantiles(0.5, 0.95, 0.99)
        name = escape_control(self.name)
        console.print(
            f"{name}: {s.messages:,} messages in {s.seconds:.1f} s, {s.throughput:,.0f} messages/s", soft_wrap=True
        )
        table = Table()
        table.add_column("result", overflow="fold")
        table.add_column("value", justify="right", no_wrap=True)
        for stream in sorted({*s.rows, *self._sink_streams}):
            table.add_row(escape_control(f"records in {stream}"), f"{s.rows.get(stream, 0):,}")
        # of records that were all there at the start it would tell how long they waited to be read
        for share, value in (("p50", p50), ("p95", p95), ("p99", p99)) if self._arrives_over_time else ():
            table.add_row(f"latency {share}", "–" if math.isnan(value) else f"{value * 1000:,.1f} ms")
        table.add_row("rejected records", f"{s.errors:,}")
        for reason, rejected in sorted(s.reasons.items()):
            taken = s.steps.get(reason.partition(": ")[0], (0, 0))[0]
            table.add_row(escape_control(f"  {reason}"), f"{rejected:,} of {taken:,}" if taken else f"{rejected:,}")
        table.add_row("batches", f"{s.batches:,}")
        console.print(table)
        console.print(f"results: {self.results}/<stream>/*.{self.out_format}", soft_wrap=True)
        if self.all_rejected:
            self._show_rejected(console)

    def _show_rejected(self, console: Console) -> None:
        """Print the first rejected record and where all of them are."""
        first = self.sink().table(ERRORS_STREAM).slice(0, 1).to_pylist()
        console.print("no results: all records were rejected", style="bold red")
        for row in first:
            why = f"{row['task']}: {row['reason']} ({row['message']})"
            line = escape_control(f"the first, by {why}: {excerpt(row['raw'] or '', 200)!r}")
            console.print(line, soft_wrap=True)
        console.print(f"all, with reasons: {self.results / ERRORS_STREAM}/*.{self.out_format}", soft_wrap=True)

    def draw(self, console: Console) -> None:
        """For STATS, draw raw, smoothed and predicted values of one sensor."""
        if self.name != "stats":
            return
        path = self.folder / f"{self.name}.png"
        drawn = draw_sensor(path, self.feed.schema, self.feed.parsed)
        console.print(f"plot: {path}" if drawn else "no plot: no sensor has enough values", soft_wrap=True)


def _place(path: str | Path | Address, option: str) -> Path | Address:
    """Return the folder or address of an option; a folder is as it was given."""
    if isinstance(path, Address):
        return path
    return Address.of(path, {}, option) if is_address(path) else local_path(path, option)


def _show_restart(report: RestartReport | None, console: Console) -> None:
    """Print what a restart of a changed dataflow has kept."""
    for line in str(report or "").splitlines():
        console.print(escape_control(line), soft_wrap=True)

"""The job of ``riot-ops run learn``: PRED predicts while TRAIN trains new models, and switches to each of them."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from riot_ops.cli.job import Job
from riot_ops.cli.riotbench_plots import WINDOWS, draw_errors
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError
from riot_ops.core.parquet_file import read_parquet
from riot_ops.core.sink import MemorySink
from riot_ops.core.source import Source
from riot_ops.dataflows.riotbench.pred import MODELS
from riot_ops.ingest.memory_source import MemorySource
from riot_ops.ingest.pace import paced

__all__ = ["LearningJob"]

#: Seconds between two spans that TRAIN trains on, by runner; Spark takes longer to start a query.
SPAN_INTERVAL_S = {"local": 5.0, "spark": 12.0}
#: Length of the stream without --rate, and how long PRED waits for one more model, both in such intervals.
STREAM_SPANS, PATIENCE_SPANS = 4.8, 3
#: Number of sources whose messages PRED numbers together: the stream, and the models.
SOURCES = 2
#: Messages per second if their number is not known in advance.
DEFAULT_RATE = 1000.0


@dataclass
class LearningJob(Job):
    """A run of PRED while TRAIN trains models and announces them to PRED, which switches to each."""

    #: Each batch is a file of the embedded broker, so batches are bounded by time.
    default_buffering: ClassVar[Buffering | None] = Buffering(flush_after="100ms")

    reads_mqtt: ClassVar[bool] = False
    reads_results: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self.name = "pred"
        super().__post_init__()
        if self.speed is not None or self.curve is not None:
            raise ConfigError(
                "learn takes --rate, not --speed or --curve: it trains models at fixed wall-clock intervals"
            )
        if self.checkpoint is not None:
            raise ConfigError("learn takes no --checkpoint: a run always starts from its own first models")
        self.rate = self.rate or (
            DEFAULT_RATE if self.input is not None else self.messages / (STREAM_SPANS * self._span_interval_s)
        )
        self.feed.rate = self.rate
        self._spans = pa.table({})

    @property
    def _span_interval_s(self) -> float:
        return SPAN_INTERVAL_S[self.runner]

    @property
    def _patience(self) -> timedelta:
        return timedelta(seconds=PATIENCE_SPANS * self._span_interval_s)

    def sources(self, console: Console) -> dict[str, Source | pa.Table]:
        """Return the stream and the announcements of models; train the first models before."""
        with console.status("storing readings and training the first models …"):
            self._spans = self.services.load(self.source(paced=False))
            self.services.train().run(self._spans.slice(0, 1), sinks=MemorySink())
        return {
            MODELS: self.services.model_updates(self._patience),
            self.stream: self.source(paced=True),
        }

    @contextlib.contextmanager
    def concurrent_work(self, spark: Any = None) -> Iterator[None]:
        """Run TRAIN over the other spans, one every few seconds, with the same runner."""
        flow = self.services.train()
        spans = paced(MemorySource(self._spans.slice(1)), None, 1 / self._span_interval_s)
        if spark is not None:
            query = flow.start(spark, spans, sinks=MemorySink())
            try:
                yield
                query.wait(timeout=self._patience)
            finally:
                query.stop()
            return
        trained: Future[Any] = Future()

        def train() -> None:
            try:
                trained.set_result(flow.run(spans, sinks=MemorySink()))
            except BaseException as error:  # raised by the run
                trained.set_exception(error)

        # not a pool, for which an interrupted run would wait
        threading.Thread(target=train, daemon=True, name="riot_ops-train").start()
        yield
        trained.result()

    # -- result ------------------------------------------------------------------------------------

    def show(self, console: Console) -> None:
        super().show(console)
        predicted = self._predictions
        if predicted is None:
            return
        models = predicted.group_by("model").aggregate([("seq", "min"), ("seq", "max"), ("seq", "count")])
        models = models.sort_by("seq_min")
        table = Table(title="models of the predictions")
        for column in ("model", "from message", "to message", "predictions", "in use from"):
            table.add_column(column, justify="left" if column == "model" else "right", overflow="fold")
        for row in models.to_pylist():
            counts = (f"{row[name]:,}" for name in ("seq_min", "seq_max", "seq_count"))
            table.add_row(str(row["model"]), *counts, f"{row['seq_min'] / (self.rate or DEFAULT_RATE):.1f} s")
        console.print(table)
        first, last = models["seq_min"].to_pylist(), models["seq_max"].to_pylist()
        overlaps = sum(a >= b for a, b in zip(last, first[1:], strict=False))
        unpredicted = (self.messages if self.input is None else last[-1] + 1) - predicted.num_rows
        console.print(
            f"PRED switched to a new model {models.num_rows - 1} times: {unpredicted:,} messages without a prediction, "
            f"{overlaps} models used after their successor"
        )

    def draw(self, console: Console) -> None:
        """Draw the error over time, with each model in a colour of its own."""
        predicted = self._predictions
        if predicted is None or predicted.num_rows < WINDOWS:
            console.print("no plot: there are too few predictions")
            return
        errors = np.asarray(predicted["error"].to_numpy(zero_copy_only=False), np.float64)
        seconds = predicted["seq"].to_numpy() / (self.rate or DEFAULT_RATE)
        path = self.folder / "learn.png"
        draw_errors(path, seconds, errors, predicted["model"].to_pylist())
        console.print(f"plot: {path}", soft_wrap=True)

    @functools.cached_property
    def _predictions(self) -> pa.Table | None:
        """The predictions in the order of their messages; ``seq`` counts the messages of the stream alone."""
        files = sorted((self.folder / "publish_error").glob("*.parquet"))
        if not files:
            return None
        table = pa.concat_tables(read_parquet(file, ["seq", "error", "model"]) for file in files).sort_by("seq")
        numbers = table["seq"].to_numpy() // SOURCES
        return table.set_column(0, "seq", pa.array(numbers))

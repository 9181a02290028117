"""Local services: file-based stand-ins for the servers that an application needs besides its stream.

A table in an SQLite file, models and blobs in folders, a file-based broker, a trained Bloom filter, a table of
annotations.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from riot_ops import dataflows
from riot_ops import tasks as t
from riot_ops.connectors.mqtt.source import MQTTSource
from riot_ops.connectors.stores.factory import shared_blobs, shared_table
from riot_ops.core.errors import ConfigError
from riot_ops.core.parameters import Duration
from riot_ops.core.schema import StreamSchema, stream_schema
from riot_ops.core.sink import MemorySink
from riot_ops.core.source import Source
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.riotbench.etl import ROW_KEY
from riot_ops.dataflows.riotbench.feature_sets import FEATURE_SETS, feature_rows
from riot_ops.dataflows.riotbench.pred import MODELS
from riot_ops.dataflows.riotbench.train_timer import TICKS
from riot_ops.models import ModelStore
from riot_ops.sketches.bloom import BloomFilter

__all__ = ["LocalServices"]

TABLE = "readings"
#: Number of spans into which training divides the time of the stored readings.
TRAINING_SPANS = 5
#: Points per chart, and the maximum over all charts together.
POINTS, MAX_POINTS = 200, 200_000
#: How long a bounded run waits for model updates.
PATIENCE = timedelta(seconds=3)
#: How long the broker keeps the session of a run that has ended.
SESSION_EXPIRY = timedelta(minutes=10)


@dataclass(frozen=True)
class LocalServices:
    """Addresses of an application's stores and broker, by default files below ``out``."""

    stream: str
    out: Path
    table: str | None = None
    models: str | None = None
    broker: str | None = None

    @property
    def table_url(self) -> str:
        """Address of the table's store."""
        return self.table or f"sqlite:///{(self.out / 'store.db').absolute()}"

    @property
    def models_url(self) -> str:
        """Address of the model store."""
        return self.models or str((self.out / "models").absolute())

    @property
    def broker_url(self) -> str:
        """Address of the broker."""
        return self.broker or (self.out / "broker").absolute().as_uri()

    # -- applications ------------------------------------------------------------------------------

    def etl(self, sensors: Sequence[str] | None) -> Dataflow:
        """Build ETL over a stream of these sensors; None: they are not known, and neither checked nor annotated."""
        options: dict[str, Any] = {}
        if sensors is not None:
            annotations = self.out / "annotations.txt"
            lines = (f"{name}:unit {i:05d}" for i, name in enumerate(sensors) if ":" not in name)
            annotations.write_text("\n".join(lines) + "\n", encoding="utf-8")
            options = {"known_sensors": self.save_filter(sensors), "annotations": annotations}
        return dataflows.etl(
            self.stream,
            **options,
            store=self.table_url,
            table=TABLE,
            publish={"url": self.broker_url, "topic": f"etl/{self.stream}"},
        )

    def stats(
        self, sensors: Sequence[str] | None, form: str | None = None, schema: StreamSchema | None = None
    ) -> Dataflow:
        """Build STATS over a stream of these sensors; it publishes only if a broker is given.

        Sensors that are not known (None) are not checked.
        """
        publish: dict[str, object] = {"url": self.broker_url, "topic": f"stats/{self.stream}"}
        options: dict[str, Any] = {} if sensors is None else {"known_sensors": self.save_filter(sensors)}
        if form == "plots" and sensors is not None:
            options = self._charts(form, len(sensors) * len((schema or stream_schema(self.stream)).numeric))
        return dataflows.stats(schema or self.stream, publish=None if self.broker is None else publish, **options)

    def train(self) -> Dataflow:
        """Build TRAIN over the table."""
        return dataflows.train(
            self.stream,
            store=self.models_url,
            table_store=self.table_url,
            table=TABLE,
            publish={"url": self.broker_url},
        )

    def pred(self, parallelism: int, form: str | None = None, sensors: int = 1) -> Dataflow:
        """Build PRED with the newest models; in the paper's form with charts of the given number of sensors."""
        store, dataset = ModelStore.open(self.models_url), self.stream.upper()
        return dataflows.pred(
            self.stream,
            store=self.models_url,
            classifier=store.newest("DTC", dataset),
            regression=store.newest("MLR", dataset),
            parallelism=parallelism,
            publish={"url": self.broker_url, "topic": f"pred/{self.stream}"},
            **(self._charts(form, sensors) if form == "paper" else {}),
        )

    def _charts(self, form: str, charts: int) -> dict[str, Any]:
        """Return the options of a form with charts: POINTS points per chart, up to MAX_POINTS in total."""
        size = max(1, min(POINTS * charts, MAX_POINTS))
        return {"form": form, "charts": str(self.out / "charts"), "plot_size": size}

    def save_filter(self, sensors: Sequence[str]) -> Path:
        """Save a Bloom filter of these sensors, and return its path."""
        path = self.out / "known_sensors.bloom"
        BloomFilter.of(sensors, 0.01).save(path)
        return path

    # -- data --------------------------------------------------------------------------------------

    def create(self) -> None:
        """Create the table and the model store unless they exist."""
        shared_table(self.table_url, TABLE).create()
        shared_blobs(self.models_url).create()

    def has_models(self) -> bool:
        """Return whether the store has a model of each kind."""
        store, dataset = ModelStore.open(self.models_url), self.stream.upper()
        return None not in (store.newest("DTC", dataset), store.newest("MLR", dataset))

    def load(self, source: Source, n: int = TRAINING_SPANS) -> pa.Table:
        """Insert the readings of a source into the table; return the ticks of n spans that cover them."""
        learning = FEATURE_SETS[self.stream]
        flow = Dataflow("load")
        insert = t.InsertTable(
            store=self.table_url,
            table=TABLE,
            partition=self.stream,
            row=ROW_KEY,
            fields=("event_time", "sensor_id", *learning.features),
        )
        flow.sink("out", feature_rows(flow.source(self.stream), self.stream).to(insert, id="insert"))
        times = flow.run(source, sinks=MemorySink())["insert"]["event_time"].cast(pa.int64()).drop_null()
        if not len(times):
            raise ConfigError("the source has no readings to train on")
        return spans(pc.min(times).as_py() // 1000, pc.max(times).as_py() // 1000 + 1, n)

    def model_updates(self, patience: Duration = PATIENCE) -> Source:
        """Return a source of the names of new models, which ends once none has arrived for ``patience``."""
        name = f"riot_ops-pred-{uuid.uuid4().hex[:12]}"
        return MQTTSource(
            url=self.broker_url,
            topics=(f"{MODELS}/{self.stream}/#",),
            client_id=name,
            spool=str(self.out / "spool" / name),
            session_expiry=SESSION_EXPIRY,
            idle=patience,
        )


def spans(first_ms: int, end_ms: int, n: int = TRAINING_SPANS) -> pa.Table:
    """Build the ticks that divide a time span into n spans of equal length.

    >>> spans(0, 10, 2).select(["start", "end"]).to_pylist()
    [{'start': 0, 'end': 5}, {'start': 5, 'end': 10}]
    """
    edges = [first_ms + (end_ms - first_ms) * i // n for i in range(n + 1)]
    ticks: list[dict[str, Any]] = [
        {"seq": i, "event_time": edges[i + 1] * 1000, "start": edges[i], "end": edges[i + 1]} for i in range(n)
    ]
    columns = [pa.array([t[f.name] for t in ticks], pa.int64()).cast(f.type) for f in TICKS]
    return pa.Table.from_arrays(columns, schema=TICKS)

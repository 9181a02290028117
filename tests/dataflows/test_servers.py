"""The applications with real servers: tables and models in Azure's emulator, messages through Mosquitto."""

from __future__ import annotations

import itertools
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from riot_ops import dataflows
from riot_ops.connectors import MQTTSource
from riot_ops.connectors.stores import open_blobs, open_table
from riot_ops.dataflows.local_services import spans
from riot_ops.dataflows.riotbench.pred import MODELS
from riot_ops.testing import PAUSE, ScriptedSource
from tests.connectors.mqtt.tools import Listener, until
from tests.dataflows.riotbench_inputs import N, features, source, table

pytestmark = pytest.mark.integration


class Gated:
    """Yield the messages of a stream, the last ones once the gate is open."""

    def __init__(self, stream, messages, last):
        (batch,) = table(source(stream, messages)).combine_chunks().to_batches()
        self.open = threading.Event()
        steps = itertools.count(1)
        self.source = ScriptedSource(
            [batch.slice(0, messages - last), PAUSE("1s"), batch.slice(messages - last)],
            clock=lambda: next(steps) if self.open.is_set() else 0,
        )


@pytest.fixture
def cloud(azurite, monkeypatch):
    """Name a table and a container of this test."""
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azurite.connection)
    name = f"t{uuid.uuid4().hex}"
    open_blobs(f"azure-blob://{name}").create()
    open_table("azure-table://", name).create()
    return name


def linear(model, x):
    return model["intercept"] + x[model["inputs"]].to_numpy() @ np.array(model["coefficients"])


def classes(model, x):
    """Classify each row by walking down the tree."""
    found = []
    for row in x[model["inputs"]].to_numpy():
        node = 0
        while model["left"][node] >= 0:
            left = np.float32(row[model["feature"][node]]) <= model["threshold"][node]
            node = model["left" if left else "right"][node]
        found.append(model["classes"][int(np.argmax(model["value"][node]))])
    return np.array(found)


def test_pred_switches_to_models_announced_by_train(cloud, own_mosquitto, tmp_path):
    """ETL fills the table; TRAIN trains on one half and, while PRED runs, on the other half."""
    stream, models, messages, early, late = "taxi", f"azure-blob://{cloud}", 10_000, 1000, 500
    filled = dataflows.etl(stream, store="azure-table://", table=cloud).run(source(stream, seed=1))
    assert len(open_table("azure-table://", cloud).range(stream, "0", "9")) == N
    times = pc.min_max(filled["insert"]["event_time"].cast(pa.int64())).as_py()
    ticks = spans(times["min"] // 1000, times["max"] // 1000 + 1, 2)
    train = dataflows.train(
        stream, store=models, table_store="azure-table://", table=cloud, publish={"url": own_mosquitto.url}
    )

    def learn(tick):
        result = train.run(ticks.slice(tick, 1))
        assert result.errors.num_rows == 0
        return {kind: result[f"publish_{kind}"]["model"][0].as_py() for kind in ("mlr", "dtc")}

    old = learn(0)
    readings = Gated(stream, messages, late)
    news = MQTTSource(
        url=own_mosquitto.url,
        topics=(f"models/{stream}/#",),
        client_id="pred",
        spool=str(tmp_path / "spool"),
        messages=4,  # the messages of the first training are retained
    )
    pred = dataflows.pred(stream, store=models, classifier=old["dtc"], regression=old["mlr"], parallelism=3)
    begun = threading.Event()

    def progress(summary):
        if summary.messages >= early + 4:
            begun.set()
        if summary.messages == messages - late + 4:  # all model updates have been processed
            readings.open.set()

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(pred.run, {MODELS: news, stream: readings.source}, batch_size=20, progress=progress)
        assert begun.wait(60)
        new = learn(1)
        result = running.result(120)

    assert result.errors.num_rows == 0
    assert sorted(open_blobs(models).list()) == sorted([*old.values(), *new.values()])
    x = features(stream, messages).to_pandas()
    for kind, apply, output, field in (("mlr", linear, "error", "prediction"), ("dtc", classes, "classes", "class")):
        before, after = (apply(json.loads(open_blobs(models).read(names[kind])), x) for names in (old, new))
        rows = result[output].sort_by("seq")
        assert rows["seq"].to_pylist() == list(range(0, 2 * messages, 2)), "each record has one result"
        found = rows[field].to_numpy()
        is_old, is_new = (
            found == one if kind == "dtc" else np.isclose(found, one, rtol=1e-9) for one in (before, after)
        )
        place = rows["model"].index(new[kind]).as_py()
        assert rows["model"].to_pylist() == [old[kind]] * place + [new[kind]] * (messages - place), "in all instances"
        assert early <= place <= messages - late
        assert is_old[:place].all() and is_new[place:].all()
        differs = is_old != is_new  # where the models agree, the result does not show which one was used
        assert min(differs[:place].sum(), differs[place:].sum()) >= 10


def test_restarted_broker_receives_every_message_of_etl(own_mosquitto):
    """QoS 1: the broker delivers accepted messages after the restart; unacknowledged ones are sent again."""
    messages, late = 3000, 300
    readings, some = Gated("city", messages, late), threading.Event()
    publish = {"url": own_mosquitto.url, "topic": "etl/city", "user_properties": ("seq",), "max_in_flight": 100}
    flow = dataflows.etl("city", publish=publish)

    def progress(summary):
        if summary.messages >= messages // 3:
            some.set()

    # the broker is started by the main thread: it ends with the thread that started it
    with Listener(own_mosquitto.url, "etl/#") as listener, ThreadPoolExecutor(1) as pool:
        running = pool.submit(flow.run, readings.source, batch_size=100, progress=progress)
        assert some.wait(60)
        own_mosquitto.stop()
        readings.open.set()
        assert not running.done()
        own_mosquitto.start()
        result = running.result(120)

        def received():
            return {dict(m.properties.UserProperty)["seq"]: m.payload for m in list(listener.messages)}

        until(lambda: len(received()) == messages)
    assert result.errors.num_rows == 0
    assert received() == {str(row["seq"]): row["payload"].encode() for row in result["publish"].to_pylist()}
    repeated = len(listener.messages) - messages
    assert repeated <= 4 * publish["max_in_flight"], f"{repeated} duplicates"  # at most the unacknowledged messages

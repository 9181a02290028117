"""The same records on Spark as in process, to the last bit: every application over every stream.

On Spark the dataflows of the four streams run as one query, in the time of one of them.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from riot_ops import dataflows
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.connectors.stores import open_table
from riot_ops.core.schema import SCHEMAS
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.local_services import TABLE, LocalServices
from riot_ops.dataflows.riotbench.pred import MODELS, UPDATES_SCHEMA
from riot_ops.models import ModelStore
from riot_ops.testing import exact
from tests.dataflows.riotbench_inputs import NO_NEWS, N, sensors, source

pytestmark = pytest.mark.spark

#: Messages per micro-batch: there are two, so that state passes from one to the next.
BATCH = N // 2


def together(flows):
    """Combine several dataflows, with each one's name as a prefix of its ids."""
    nodes, edges = [], []
    for name, flow in flows.items():
        described = flow.to_dict()
        nodes += [{**node, "id": f"{name}.{node['id']}"} for node in described["nodes"]]
        edges += [{**e, "from": f"{name}.{e['from']}", "to": f"{name}.{e['to']}"} for e in described["edges"]]
    return Dataflow.from_dict({**described, "name": "together", "nodes": nodes, "edges": edges})


def check(spark, local, other, inputs, others=None, max_records=BATCH):
    """Run the dataflows in process, and all of the other side as one on Spark; compare every column."""
    sources = {f"{stream}.{name}": one for stream, given in (others or inputs).items() for name, one in given.items()}
    query = together(other).start(spark, sources, max_records=max_records)
    query.wait(timeout="5min")
    assert not query.active
    assert query.summary.batches >= 2
    errors = []
    for stream, flow in local.items():
        result = flow.run(inputs[stream])
        errors += [{**row, "task": f"{stream}.{row['task']}"} for row in result.errors.to_pylist()]
        for output in sorted({e.source for sink in flow.nodes_of_kind("sink") for e in flow.inputs(sink.id)}):
            wanted = sorted(map(exact, result[output].to_pylist()))
            assert wanted, f"{stream}: no records in {output}"
            assert sorted(map(exact, query[f"{stream}.{output}"].to_pylist())) == wanted, f"{stream}: {output}"
    assert sorted(map(exact, query["errors"].to_pylist())) == sorted(map(exact, errors))


def surroundings(folder, tables=None):
    """Create the local services of each stream in a folder, possibly with other tables."""
    found = {}
    for stream in SCHEMAS:
        out = folder / stream
        out.mkdir(parents=True)
        found[stream] = LocalServices(stream, out, table=tables and tables[stream])
    return found


def brokers(*sides):
    """Open sessions at the brokers of both sides to receive the published messages."""
    return [{s: FolderBroker(around.broker_url).session("test", ["#"]) for s, around in side.items()} for side in sides]


def messages(sessions):
    return {stream: sorted((m.topic, m.payload) for m in session.next()) for stream, session in sessions.items()}


def test_etl_equals_its_run_on_spark(spark, tmp_path):
    local, other = surroundings(tmp_path / "local"), surroundings(tmp_path / "spark")
    sessions = brokers(local, other)
    flows = [{s: around.etl(sensors(s)[1:]) for s, around in side.items()} for side in (local, other)]
    check(spark, *flows, {s: {s: source(s)} for s in SCHEMAS})
    a, b = map(messages, sessions)
    assert a == b and all(len(found) == N for found in a.values())
    for stream in SCHEMAS:
        a, b = (open_table(side[stream].table_url, TABLE).range(stream, "0", "9") for side in (local, other))
        assert sorted(map(exact, (r.values for r in a))) == sorted(map(exact, (r.values for r in b)))
        assert len(a) == N


def test_stats_equals_its_run_on_spark(spark, tmp_path):
    """Two of the streams in either form; the charts are the same bytes."""
    local, other = surroundings(tmp_path / "local"), surroundings(tmp_path / "spark")
    sessions = brokers(local, other)

    def flow(stream, around):
        publish = {"url": around.broker_url, "topic": "stats/{obs_type}"}
        if stream in ("city", "grid"):
            return dataflows.stats(stream, form="plots", plot_size=200, publish=publish)
        return dataflows.stats(stream, known_sensors=sensors(stream)[1:], publish=publish)

    flows = [{s: flow(s, around) for s, around in side.items()} for side in (local, other)]
    check(spark, *flows, {s: {s: source(s)} for s in SCHEMAS})
    a, b = map(messages, sessions)
    assert a == b


@pytest.mark.slow  # tests/tasks/predict/test_training_task.py trains on Spark, too
def test_train_equals_its_run_on_spark(spark, trained, tmp_path):
    """Equal tables give models of equal bytes; a model's time is the time of its data."""
    tables = {stream: around.table_url for stream, (around, _) in trained.items()}
    local, other = (surroundings(tmp_path / side, tables) for side in ("local", "spark"))
    sessions = brokers(local, other)
    ticks = {s: {"ticks": around.load(source(s, seed=1))} for s, (around, _) in trained.items()}
    check(spark, *({s: around.train() for s, around in side.items()} for side in (local, other)), ticks, max_records=3)
    a, b = map(messages, sessions)
    assert a == b
    for stream in SCHEMAS:
        a, b = (ModelStore.open(side[stream].models_url) for side in (local, other))
        names = a.names()
        assert b.names() == names and len(names) == 10
        assert [a.files.read(name) for name in names] == [b.files.read(name) for name in names]


@pytest.mark.slow  # its tasks are compared one by one, and STATS and ETL as applications
def test_pred_equals_its_run_on_spark(spark, trained, tmp_path):
    """With charts. In process it begins with the newest models; on Spark the second source delivers them first.

    Where news fall in mid-stream is not compared: among the records of another source that depends, on
    either runner, on when they are read.
    """

    def flow(side, stream, classifier, regression):
        store, charts = trained[stream][0].models_url, str(tmp_path / side / stream)
        models = {"store": store, "classifier": classifier, "regression": regression, "parallelism": 2}
        return dataflows.pred(stream, form="paper", charts=charts, plot_size=120, **models)

    local, other, inputs, others = {}, {}, {}, {}
    for stream, (around, result) in trained.items():
        first = [result[f"publish_{kind}"]["model"][0].as_py() for kind in ("dtc", "mlr")]
        newest = [ModelStore.open(around.models_url).newest(kind, stream.upper()) for kind in ("DTC", "MLR")]
        news = [{"seq": i - 2, "payload": name.encode(), "topic": "new"} for i, name in enumerate(newest)]
        local[stream], other[stream] = flow("local", stream, *newest), flow("spark", stream, *first)
        inputs[stream] = {MODELS: NO_NEWS, stream: source(stream)}
        others[stream] = {MODELS: pa.Table.from_pylist(news, UPDATES_SCHEMA), stream: source(stream)}
    check(spark, local, other, inputs, others)
    for stream in SCHEMAS:
        a, b = ({p.name: p.read_bytes() for p in (tmp_path / x / stream).glob("*.zip")} for x in ("local", "spark"))
        assert a and a == b

"""A driver and a cluster whose workers do not see its disk: ``cluster_job.py FOLDER NAME…`` runs scenarios on it."""

from __future__ import annotations

import json
import socket
import sys
import tarfile
import time
from pathlib import Path

import pyarrow as pa

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import HTTPSink, KafkaSource, MQTTSink, MQTTSource
from riot_ops.core.errors import ConfigError
from riot_ops.streams.dspbench.adverts import AdvertsSource
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.testing import exact
from riot_ops.testing.services import Mosquitto, Moto, free_port
from riot_ops.testing.spark_cluster import EXECUTOR, SparkCluster
from tests.connectors.mqtt.tools import Listener, apply

WAIT = "6min"


def rows(table: pa.Table) -> list:
    return sorted(map(exact, table.to_pylist()))


def wait_for_batch(query, number: int) -> None:
    """Wait until a micro-batch has been committed."""
    until = time.monotonic() + 240
    while (query.streaming.lastProgress or {"batchId": -1})["batchId"] < number:
        assert time.monotonic() < until, "the query makes no progress"
        assert query.streaming.isActive, query.streaming.exception()
        time.sleep(0.05)


def smoothing() -> ro.Dataflow:
    flow = ro.Dataflow("cluster")
    city = flow.source("city") >> t.ParseSenML(schema="city")
    flow.sink("out", city.to(t.KalmanFilter(by=("sensor_id", "obs_type")), id="smooth"))
    return flow


# -- scenarios -----------------------------------------------------------------------------------


def executor(cluster: SparkCluster, spark, folder: Path) -> None:
    """An executor is killed while a query runs: the results are those of a run in process."""
    source = ro.streams.city(sensors=5, messages=300)
    query = smoothing().start(spark, source, checkpoint=cluster.shared / "executor", max_records=50)
    wait_for_batch(query, 1)
    assert cluster.kill_executor(0) == 1
    query.wait(WAIT)
    assert rows(query["smooth"]) == rows(smoothing().run(source)["smooth"])


def refusals(cluster: SparkCluster, spark, folder: Path) -> None:
    """What assumes the driver's disk is refused before anything is read or written, by name and with a remedy."""
    source = ro.streams.city(sensors=5, messages=20)
    disk = folder / "disk"
    disk.mkdir()
    shared = cluster.shared / "refusals"
    stateless = ro.Dataflow("stateless")
    stateless.sink("out", stateless.source("city") >> t.ParseSenML(schema="city"))

    def refused(flow, given=source, *words, **options):
        before = sorted(disk.rglob("*"))
        try:
            flow.start(spark, given, **options)
        except ConfigError as error:
            assert "workers of this cluster" in str(error) and all(word in str(error) for word in words), error
        else:
            raise AssertionError(f"a query started that needs the driver's disk: {words}")
        assert sorted(disk.rglob("*")) == before
        assert not shared.exists()

    refused(smoothing(), source, "the checkpoint", "hdfs://")  # the temporary one
    refused(smoothing(), source, f"the checkpoint {disk}/checkpoint", checkpoint=disk / "checkpoint")
    refused(stateless, source, f"{disk}/out, to which the sink 'out' writes", "PublishMQTT", out=disk / "out")
    lines = disk / "lines.csv"
    lines.write_text("".join(f"0,{line}\n" for line in ("a", "b")))
    refused(stateless, ro.streams.replay(lines), f"{lines}, which the source 'city' reads")
    published = ro.Dataflow("published")
    publish = t.PublishMQTT(url=disk.as_uri(), topic="x", payload=None, fields=("value",))
    published.sink("out", (published.source("city") >> t.ParseSenML(schema="city")).to(publish, id="publish"))
    refused(published, source, f"{disk}, url of the step 'publish'", "address of a broker")
    if cluster.separate_networks:
        with socket.create_server(("127.0.0.1", 0)) as server:
            local = f"127.0.0.1:{server.getsockname()[1]}"
            to = MQTTSink(url=f"mqtt://{local}", topic="x", fields=("value",))
            refused(stateless, source, f"{local}, url of the sink 'out'", "the server is on the driver's", sinks=to)
            brokers = KafkaSource(servers=local, topics=("x",))
            refused(stateless, brokers, f"{local}, servers of the source 'city'", sinks=ro.MemorySink())
    certified = HTTPSink(url="https://h/x", ca_file=str(lines))
    refused(stateless, source, f"{lines}, ca_file of the sink 'out'", sinks=certified)
    frame = spark.createDataFrame([(1.0,), (2.0,)], "value double")
    plain = ro.Dataflow("plain")
    plain.sink("out", plain.source("rows", schema={"value": "double"}).to(t.NoOp(), id="kept"))
    refused(plain, frame, f"the checkpoint {disk}/frame", checkpoint=disk / "frame")
    counted = ro.Dataflow("counted")
    numbers = counted.source("rows", schema={"value": "int64"})
    counted.sink("out", numbers.to(t.RunningCount(), id="count"))
    endless = counted.frames(spark.readStream.format("rate").load().select("value"))
    try:
        endless.write_each(lambda *_: None, checkpoint=disk / "each")
    except ConfigError as error:
        assert f"do not see the checkpoint {disk}/each" in str(error), error
    else:
        raise AssertionError("a query started whose checkpoint cannot be continued")
    summary = stateless.start(spark, source, out=cluster.shared / "out").wait(WAIT)
    assert summary.messages == 20 and list((cluster.shared / "out").rglob("*.parquet"))


def stats(cluster: SparkCluster, spark, folder: Path) -> None:
    """STATS loses an executor and a whole worker: nothing is lost."""
    source = ro.streams.city(sensors=20, messages=3000)
    flow = ro.dataflows.stats("city")
    query = flow.start(spark, source, checkpoint=cluster.shared / "stats", max_records=250, partitions=4)
    wait_for_batch(query, 1)
    assert cluster.kill_executor(0) == 1
    wait_for_batch(query, 4)
    cluster.kill_worker(1)
    wait_for_batch(query, 6)
    cluster.start_worker(1)
    query.wait(WAIT)
    wanted = flow.run(source)
    assert query.summary.messages == 3000
    for name in wanted:
        assert rows(query[name]) == rows(wanted[name]), name
    # each machine has compiled for itself, into a cache of its own
    names = [{path.parent.name for path in m.folder.glob("cache/numba/riot_ops/*/*.nbc")} for m in cluster.machines]
    assert all(len(one) > 5 for one in names), names


def windows(cluster: SparkCluster, spark, folder: Path) -> None:
    """Yahoo's streaming benchmark counts in windows; the workers write to an object store."""
    source = AdvertsSource(messages=3000)
    flow = ro.dataflows.yahoo_streaming()
    wanted = flow.run(source)["campaigns"]
    with Store(cluster.host) as store:
        sink = ro.ParquetSink(f"{store.bucket()}/windows", storage_options=store.storage_options())
        query = flow.start(spark, source, sinks=sink, checkpoint=cluster.shared / "windows", max_records=500)
        query.wait(WAIT)
        found = query["campaigns"].select(wanted.column_names)
        assert rows(found) == rows(wanted) and wanted.num_rows


class Store(Moto):
    """An object store that workers reach."""

    def __init__(self, host: str) -> None:
        super().__init__()
        self._host = host
        self.endpoint = f"http://{host}:{self._port}"

    def command(self) -> list[str]:
        return [word.replace("127.0.0.1", self._host) for word in super().command()]

    def ports(self) -> tuple[int, ...]:
        return ()  # it does not listen on loopback

    def bucket(self) -> str:
        """Create a bucket as soon as the server answers, and return its URL."""
        until = time.monotonic() + 60
        while True:
            try:
                return self.create_bucket("cluster")
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.1)


def pred(cluster: SparkCluster, spark, folder: Path) -> None:
    """PRED reads from a broker and publishes to it, over the network, and the broker restarts in between."""
    from riot_ops.dataflows.local_services import LocalServices
    from riot_ops.dataflows.riotbench.pred import MODELS, UPDATES_SCHEMA
    from riot_ops.models import ModelStore

    messages, early = 1500, 900
    services = LocalServices("city", folder / "services")
    services.out.mkdir()
    services.create()
    training = services.train().run(services.load(ro.streams.city(sensors=20, messages=500, seed=7)))
    assert training.errors.num_rows == 0
    store = ModelStore.open(services.models_url)
    models = {kind: (Path(services.models_url) / store.newest(kind, "CITY")).read_text() for kind in ("DTC", "MLR")}
    port = free_port()
    url = f"mqtt://{cluster.host}:{port}"
    lines = CitySource(20, messages).lines(0, messages)
    with Mosquitto(options=[f"listener {port} {cluster.host}"]) as broker:
        raw = MQTTSource(
            url=url,
            topics=("city",),
            client_id="cluster",
            spool=str(folder / "spool"),  # the workers do not see it
            messages=messages,
            timeout="60s",
        )
        raw.open()
        raw.close()
        flow = ro.dataflows.pred(
            "city",
            store="memory://cluster",
            classifier=models["DTC"],
            regression=models["MLR"],
            publish={"url": url, "topic": "pred/city", "timeout": "60s"},
        )
        nothing = UPDATES_SCHEMA.empty_table()
        with Listener(url, "pred/#") as listener:
            send = t.PublishMQTT(url=url, topic="city")
            apply(send, lines.slice(0, early))
            query = flow.start(
                spark,
                {"city": raw, MODELS: nothing},
                checkpoint=cluster.shared / "pred",
                max_records=100,
                trigger="1s",
            )
            wait_for_batch(query, 2)
            assert cluster.kill_executor(1) == 1
            broker.stop()
            time.sleep(2)
            broker.start()
            apply(t.PublishMQTT(url=url, topic="city", timeout="60s"), lines.slice(early))
            query.wait(WAIT)
            assert query.summary.errors == 0
            wanted = flow.run({"city": pa.Table.from_batches([lines]), MODELS: nothing}, sinks=ro.MemorySink())
            expected = {
                (row["seq"], "class" in row): row | {"event_time": None}
                for name in ("publish_classes", "publish_error")
                for row in wanted[name].to_pylist()
            }
            listener.wait(len(expected))
            texts = {m.payload for m in listener.messages}  # with QoS 1 a message may come twice, not in two forms
            found = {(row["seq"], "class" in row): row | {"event_time": None} for row in map(json.loads, texts)}
            assert len(texts) == len(found) == len(expected) == 2 * messages
            assert found == expected


def shipped(cluster: SparkCluster, spark, folder: Path) -> None:
    """The workers have riot_ops from an archive that the job brings."""

    def where(_):
        import riot_ops

        return riot_ops.__file__

    found = spark.sparkContext.parallelize(range(2), 2).map(where).collect()
    assert all(SITE in path for path in found), found
    source = ro.streams.city(sensors=5, messages=100)
    query = smoothing().start(spark, source, checkpoint=cluster.shared / "shipped")
    query.wait(WAIT)
    assert rows(query["smooth"]) == rows(smoothing().run(source)["smooth"])


def master(cluster: SparkCluster, spark, folder: Path) -> None:
    """The master is lost and returns, a worker is added: the query goes on, and both take part in it."""
    source = ro.streams.city(sensors=5, messages=1500)
    query = smoothing().start(spark, source, checkpoint=cluster.shared / "master", max_records=50, partitions=2)
    wait_for_batch(query, 1)
    cluster.kill_master()
    assert cluster.processes()["master"] is False
    wait_for_batch(query, 4)  # the executors work without it
    cluster.start_master()
    cluster.add_worker()
    assert cluster.kill_executor(0) == 1  # only a master that knows the job starts another one
    until = time.monotonic() + 120
    while not (cluster.machines[0].pids(EXECUTOR) and cluster.machines[-1].pids(EXECUTOR)):
        assert time.monotonic() < until, "no executor on the new worker, or none again"
        time.sleep(0.1)
    query.wait(WAIT)
    assert rows(query["smooth"]) == rows(smoothing().run(source)["smooth"])


SCENARIOS = {one.__name__: one for one in (executor, refusals, stats, windows, pred, shipped, master)}
#: Where an archive with riot_ops is unpacked, in the working folder of an executor.
SITE = "shipped-site"


def archive(folder: Path) -> dict[str, str]:
    """Pack riot_ops; returns the settings that ship it."""
    path = folder / "riot_ops.tar.gz"
    package = Path(ro.__file__).parent
    with tarfile.open(path, "w:gz") as packed:
        packed.add(package, package.name, filter=lambda one: None if "__pycache__" in one.name else one)
    return {"spark.archives": f"{path}#{SITE}", "spark.executorEnv.PYTHONPATH": SITE}


def main(folder: Path, names: list[str]) -> None:
    ships = names == ["shipped"]
    with SparkCluster(folder / "cluster", installed=not ships) as cluster:
        spark = cluster.session(archive(folder) if ships else None)
        try:
            for name in names:
                began = time.monotonic()
                (folder / name).mkdir()
                SCENARIOS[name](cluster, spark, folder / name)
                print(name, f"{time.monotonic() - began:.1f} s", flush=True)
        finally:
            spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

"""Delta tables in an object store: both ends, other readers, care, and errors without secrets."""

from __future__ import annotations

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.connectors import DeltaSink, DeltaSource
from riot_ops.core.errors import ConnectorError
from riot_ops.testing.services import Moto

pytest.importorskip("deltalake")
pytestmark = [pytest.mark.integration, pytest.mark.long]

ROWS = [{"bed": bed, "value": float(i)} for i, bed in enumerate(["a", "b c", "ü/%=?#", None, "a"])]


@pytest.fixture(scope="module")
def store():
    with Moto() as service:
        service.create_bucket("lake")
        yield service


def options(store: Moto, **more) -> dict:
    return {
        "aws_access_key_id": store.access_key,
        "aws_secret_access_key": ro.Secret(store.secret_key),
        "aws_endpoint_url": store.endpoint,
        "aws_region": store.region,
        **more,
    }


def copy(source, sink, **run):
    flow = ro.Dataflow("copy")
    schema = {"bed": "string", "value": "double"}
    flow.sink("kept", flow.source("in", schema=schema).apply(t.NoOp(), id="out"))
    return flow.run(source, sinks=sink, **run)


def test_from_table_to_table_with_a_restart(store, tmp_path):
    polars = pytest.importorskip("polars")
    given = options(store)
    first = DeltaSink("s3://lake/first", partition_by="bed", storage_options=given)
    for part in (ROWS[:3], ROWS[3:]):
        copy(part, first)
        copy(
            DeltaSource("s3://lake/first/out", storage_options=given),
            DeltaSink("s3a://lake/second/", storage_options=given),
            checkpoint=tmp_path / "kept",
        )
    plain = {name: value if isinstance(value, str) else value.reveal() for name, value in given.items()}
    plain["aws_allow_http"] = "true"
    found = polars.scan_delta("s3://lake/second/out", storage_options=plain).select("bed", "value").collect()
    assert sorted(found.rows(), key=str) == sorted(((r["bed"], r["value"]) for r in ROWS), key=str)
    care = DeltaSink("s3://lake/first", storage_options=given)
    assert care.optimize()["s3://lake/first/out"]["numFilesRemoved"] == 2, "two files of one partition are joined"
    assert len(care.vacuum(older_than="0s")["s3://lake/first/out"]) == 2
    assert care.table("out").num_rows == 5


def test_failed_writer_leaves_nothing(store):
    sink = DeltaSink("s3://lake/failed", storage_options=options(store))

    def stop(row):
        raise KeyboardInterrupt

    flow = ro.Dataflow("stopped")
    rows = flow.source("in", schema={"value": "double"})
    flow.sink("kept", rows.to(t.NoOp(), id="out").apply(ro.map(stop), id="stop"))
    with pytest.raises(KeyboardInterrupt):
        flow.run([{"value": 1.0}], sinks=sink)
    assert DeltaSource("s3://lake/failed/stop", storage_options=options(store)).initial()["version"] == 0


@pytest.mark.parametrize(
    ("address", "changed", "message"),
    [
        ("s3://nowhere/x", {}, "bucket or container does not exist"),
        ("s3://lake/x", {"aws_endpoint_url": "http://127.0.0.1:9", "max_retries": "0"}, "whether the store can be"),
    ],
)
def test_errors_name_address_and_remedy(store, address, changed, message):
    with pytest.raises(ConnectorError, match=rf"the Delta table {address}/out cannot be opened: .*{message}") as caught:
        copy(ROWS, DeltaSink(address, storage_options=options(store, **changed)))
    assert store.secret_key not in str(caught.value)
    assert str(caught.value).isprintable()

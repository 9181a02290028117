"""ETL with the benchmark's annotation tables and schemas: published messages are annotated."""

from __future__ import annotations

import json

import pytest

from riot_ops import ConfigError, dataflows, streams
from riot_ops.connectors.mqtt.folder import FolderBroker
from riot_ops.connectors.stores import open_table
from riot_ops.core.schema import StreamSchema, stream_schema
from tests.dataflows.riotbench_inputs import N, sensors, source

#: Sample, table, schema with the annotated fields and the fields that it adds.
FILES = {
    "city": (
        "SYS_sample_data_senml.csv",
        "city-metadata.txt",
        "sys-schema-with-annotationfields.txt",
        {"location": "sv", "type": "sv"},
    ),
    "taxi": (
        "TAXI_sample_data_senml.csv",
        "taxi-metadata-fulldataset.txt",
        "taxi-schema_with_annotation.csv",
        {"taxi_company": "sv", "drivername": "sv", "taxi_city": "sv"},
    ),
    "fit": (
        "FIT_sample_data_senml.csv",
        "mhealth_annotation_mapping.csv",
        "mhealth_schema_with_annoted_fields.csv",
        {"age": "v", "gender": "sv"},
    ),
}


def received(url):
    return FolderBroker(url).session("test", ["etl/#"])


@pytest.mark.long
@pytest.mark.parametrize("stream", FILES)
def test_benchmark_tables_reach_the_broker(stream, sample_data, tmp_path):
    folder = sample_data / "riotbench"
    sample, table, schema, kinds = FILES[stream]
    id_field = stream_schema(stream).id_field
    known = dict(line.split(":") for line in (folder / table).read_text(encoding="utf-8").split("\n") if line)
    flow = dataflows.etl(
        stream,
        annotations=folder / table,
        annotated=folder / schema,
        store=f"sqlite:///{tmp_path}/store.db",
        publish={"url": (tmp_path / "broker").as_uri(), "topic": f"etl/{stream}"},
    )
    session = received((tmp_path / "broker").as_uri())
    result = flow.run(source=streams.replay(folder / sample))
    assert result.errors.num_rows == 0
    sent = [json.loads(line.partition(",")[2]) for line in (folder / sample).read_text(encoding="utf-8").splitlines()]
    published = [json.loads(m.payload) for m in session.next()]
    assert len(published) == len(sent) == result["insert"].num_rows
    assert sorted(m["bt"] for m in published) == sorted(int(m["bt"]) for m in sent)
    for message in published:
        entries = {e["n"]: e for e in message["e"]}
        sensor = entries[id_field]["sv"]
        assert [entries[name].get("sv", entries[name].get("v")) for name in kinds] == [
            int(text) if kind == "v" else text
            for text, kind in zip(known[sensor].split(","), kinds.values(), strict=True)
        ]
        assert [e["n"] for e in message["e"]][-len(kinds) :] == list(kinds), "behind the stream's own fields"
    stored = open_table(f"sqlite:///{tmp_path}/store.db", "readings").range(stream, "0", "9")
    assert {(r.values["sensor_id"], *(r.values[name] for name in kinds)) for r in stored} == {
        (s, *known[s].split(",")) for s in {json_id(m, id_field) for m in sent}
    }


def json_id(message, field):
    return next(e["sv"] for e in message["e"] if e["n"] == field)


@pytest.mark.parametrize("stream", ["city", "grid"])
def test_published_messages_have_their_annotations(stream, tmp_path):
    known = sensors(stream)
    table = {name: (f"in {i}", "x,y") for i, name in enumerate(known[1:])}
    url = (tmp_path / "broker").as_uri()
    session = received(url)
    flow = dataflows.etl(
        stream, annotations=table, annotated=("room", "plan"), publish={"url": url, "topic": f"etl/{stream}"}
    )
    result = flow.run(source(stream), batch_size=70)
    assert result.errors.num_rows == 0
    found = set()
    for message in (json.loads(m.payload) for m in session.next()):
        entries = {e["n"]: (e["u"], e.get("sv")) for e in message["e"]}
        found.add((entries[stream_schema(stream).id_field][1], entries.get("room"), entries.get("plan")))
    wanted = {(name, ("string", room), ("string", plan)) for name, (room, plan) in table.items()}
    assert found == wanted | {(known[0], None, None)}, "a stranger has none: an empty text leaves its entry out"


def test_table_with_several_values_has_numbered_fields_by_default():
    flow = dataflows.etl("grid", annotations={"1": ("a", "b")})
    assert flow.nodes["annotate"].task.names == ("annotation_1", "annotation_2")
    assert flow.nodes["senml"].task.columns.columns[-2:] == ("annotation_1", "annotation_2")
    flow = dataflows.etl("grid", annotations={"1": "a"})
    assert flow.nodes["annotate"].task.names == ("annotation",)
    assert flow.run(source("grid"))["senml"].num_rows == N


def test_mismatched_annotated_fields_are_refused(tmp_path):
    table = {"1": ("a", "b")}
    with pytest.raises(ConfigError, match=r"columns must be 2 distinct names.*got \('x',\)"):
        dataflows.etl("grid", annotations=table, annotated=("x",))
    with pytest.raises(ConfigError, match=r"annotated = \('x',\) needs annotations"):
        dataflows.etl("grid", annotated=("x",))
    with pytest.raises(ConfigError, match="'meterid' twice"):
        dataflows.etl("grid", annotations={"1": "a"}, annotated=("meterid",))
    path = tmp_path / "schema.csv"
    path.write_text("meterid,energyconsumed,timestamp,x,y\n" + "u,u,u,u,u\n" + "sv,v,v,sv,sv\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="must begin with the columns of grid: meterid, timestamp, energyconsumed"):
        dataflows.etl("grid", annotations=table, annotated=path)
    own = StreamSchema(
        "own", ("meterid", "timestamp", "energyconsumed", "x", "y"), ("",) * 5, ("sv",) * 5, "x", "y", ()
    )
    flow = dataflows.etl("grid", annotations=table, annotated=own)
    assert flow.nodes["annotate"].task.names == ("x", "y")

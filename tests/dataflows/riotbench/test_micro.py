"""Micro-benchmarks: every task runs between a source and a sink, on records that suit it."""

from __future__ import annotations

import atexit
import json
import shutil
import sys
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from riot_ops import ConfigError, dataflows
from riot_ops import tasks as t
from riot_ops.core.schema import CITY
from riot_ops.dataflows.riotbench.micro import micro, micro_case, micro_source, number_messages
from riot_ops.models import fit_linear, fit_tree
from riot_ops.streams.riotbench.city import CitySource
from riot_ops.task import Case, StatelessTask, registered_tasks
from tests.discard_sink import DiscardSink
from tests.streams.records import table

INPUTS = ["temperature", "humidity", "light", "dust"]


def column(rows, name):
    return rows.column(name).to_pylist()


@pytest.mark.long
def test_observations_are_the_first_of_90_sensors_without_losses():
    rows = micro_case("KAL").batch
    wanted = table(CitySource(90, format="observations", drop=0.0), 0, 6554).slice(0, 32_768)
    assert rows.schema.names == ["seq", *(n for n in wanted.schema.names if n not in ("seq", "ordinal"))]
    assert column(rows, "seq") == list(range(32_768))
    for name in rows.schema.names[1:]:
        assert rows.column(name).equals(wanted[name].combine_chunks()), name
    assert len(set(column(rows, "sensor_id"))) == 90
    assert column(rows, "obs_type")[:10] == [*CITY.observed] * 2
    assert 0 < rows.column("value").null_count < 1000, "dirt is a part of it"


def test_keyed_task_has_sensor_and_kind_as_key():
    assert micro_case("KAL").task == t.KalmanFilter(by=("sensor_id", "obs_type"))


@pytest.mark.parametrize(("code", "format"), [("SML", "senml"), ("C2S", "csv")])
def test_lines_of_the_parsers(code, format):
    case = micro_case(code)
    wanted = table(CitySource(90, format=format, drop=0.0), 0, 8192)
    assert pa.Table.from_batches([case.batch]).equals(wanted)
    assert case.task.schema == "city"


def test_messages_of_a_join_are_complete():
    case = micro_case("JON")
    assert column(case.batch, "seq") == [i for i in range(8192) for _ in CITY.observed]
    assert column(case.batch, "ordinal")[:6] == [0, 1, 2, 3, 4, 0]
    assert pa.Table.from_batches([case.batch]).equals(table(CitySource(90, format="observations", drop=0.0), 0, 8192))
    assert case.task == t.AssembleMessage(schema=None, fields=CITY.observed, by=("seq",))


def test_rows_of_training_tasks():
    rows = micro_case("DTT").batch
    wanted = table(CitySource(90, format="wide", drop=0.0, dirt=False), 0, 32_768)
    assert column(rows, "seq") == list(range(32_768))
    for name in (*INPUTS, "airquality_raw", "event_time"):
        assert rows.column(name).equals(wanted[name].combine_chunks()), name
    # a quarter of the values lies at or below each border
    values = np.array(column(rows, "airquality_raw"))
    borders = np.sort(values)[[8191, 8192, 16_383, 16_384, 24_575, 24_576]].reshape(3, 2).mean(1)
    names = np.array(["GOOD", "AVERAGE", "BAD", "VERYBAD"])
    assert column(rows, "level") == names[(values[:, None] > borders).sum(1)].tolist()
    assert micro_case("MLT").batch is rows
    assert micro_case("MLR").batch is rows


@pytest.mark.long
def test_models_are_those_of_the_rows():
    rows = micro_case("DTC").batch
    numbers = np.array([column(rows, name) for name in INPUTS]).T
    regression, tree = micro_case("MLR").task, micro_case("DTC").task
    assert regression.inputs == tree.inputs == tuple(INPUTS)
    linear = fit_linear(numbers, np.array(column(rows, "airquality_raw")), INPUTS, "airquality_raw")
    found, wanted = json.loads(regression.model), json.loads(linear.to_json())
    assert found == wanted
    classes = fit_tree(numbers[:4096], column(rows, "level")[:4096], INPUTS, "level", min_samples_leaf=20)
    assert json.loads(tree.model) == json.loads(classes.to_json())
    assert micro_case("MLT").task == t.TrainLinearRegression(inputs=INPUTS, target="airquality_raw")
    assert micro_case("DTT").task == t.TrainDecisionTree(inputs=INPUTS, target="level")


def test_documents_of_students():
    case = micro_case("XML")
    assert column(case.batch, "seq") == list(range(256))
    session = case.task.session()
    texts = column(case.batch, "payload")
    assert [text.count("<student ") for text in texts] == [37] * 256
    numbers = [int(part.partition('"')[0]) for text in texts for part in text.split('rollno="')[1:]]
    assert numbers == list(range(256 * 37)), "no student twice"
    marks = [int(part.partition("<")[0]) for text in texts for part in text.split("<marks>")[1:]]
    assert set(marks) == set(range(40, 100))
    session.push_batch(case.batch.slice(0, 4))
    assert not session.errors


def test_half_of_the_sensors_are_known():
    names = sorted(set(column(micro_case("KAL").batch, "sensor_id")))
    known = {"sensor_id": tuple(names[::2])}
    assert dict(micro_case("BLF").task.models) == known
    assert dict(micro_case("MBL").task.models) == {**known, "obs_type": CITY.observed}


def test_tasks_by_their_parameters():
    assert micro_case("RGF").task == t.RangeFilter(bounds="city")
    assert micro_case("DAC").task == t.DistinctCount(by=("obs_type",))
    assert micro_case("BLT").task == t.TrainBloomFilter(field="sensor_id")


# -- other tasks ------------------------------------------------------------------------------------


class Picky(StatelessTask):
    """A task that rejects negative numbers, and among several records a 1 at one position."""

    code: ClassVar[str] = "ZZP"
    place: ClassVar[int] = -1

    def output_schema(self, schema):
        self.check_input(schema)
        return schema

    def requires(self):
        return {"x": "number"}

    def apply(self, batch, rejects):
        x, seq = np.array(batch.column("x")), np.array(batch.column("seq"))
        keep = (x >= 0) & ~((x == 1) & (seq == self.place) & (x.size > 1))
        rejects.reject(batch, ~keep, "picky", "not liked")
        return batch.filter(pa.array(keep))


def case(numbers, name=""):
    return Case(Picky(), pa.RecordBatch.from_pydict({"x": pa.array(numbers, pa.int64())}), name)


@pytest.fixture
def picky(monkeypatch):
    """Replace a registered task by a test task."""

    def give(*cases, place=-1):
        monkeypatch.setattr(Picky, "place", place)
        kind = type("Picky", (Picky,), {"cases": classmethod(lambda cls: iter(cases))})
        monkeypatch.setattr(sys.modules[micro.__module__], "find_task", lambda code: kind)
        micro_case.cache_clear()
        return micro_case("ZZP")

    yield give
    micro_case.cache_clear()


def test_task_gets_the_accepted_records_of_its_cases(picky):
    found = picky(case([-1, -2], "bad"), case([5, -1, 7], "mixed"), case([9], "last"))
    assert found.name == "mixed"
    assert found.batch.num_rows == 8192
    assert column(found.batch, "seq") == list(range(8192))
    assert column(found.batch, "x") == [5, 7] * 4096


@pytest.mark.parametrize(("place", "name"), [(0, "second"), (255, "second"), (256, "first")])
def test_first_256_records_are_also_tried_together(place, name, picky):
    found = picky(case([1, 1], "first"), case([2, 2], "second"), place=place)
    assert found.name == name


def test_first_case_is_used_if_none_passes_whole(picky):
    assert picky(case([1, 1], "first"), case([1], "second"), place=7).name == "first"


def test_task_without_accepted_records_is_refused(picky):
    with pytest.raises(ConfigError, match="accepts the records of none of its example cases; add one"):
        picky(case([-1]))


# -- sources ---------------------------------------------------------------------------------------


def test_message_numbers_are_the_first_and_only_seq():
    batch = pa.RecordBatch.from_pydict({"a": ["x", "y"], "seq": [7, 9]})
    rows = number_messages(batch)
    assert rows.schema.names == ["seq", "a"]
    assert rows.to_pylist() == [{"seq": 0, "a": "x"}, {"seq": 1, "a": "y"}]
    assert not rows.schema.field("seq").nullable


def test_source_repeats_the_records():
    rows = table(micro_source("XML", messages=258))
    assert column(rows, "seq") == list(range(258))
    assert column(rows, "payload")[256:] == column(rows, "payload")[:2]
    assert micro_source("XML").messages is None


def test_published_messages_are_lines_and_their_folder_is_removed_at_exit(monkeypatch):
    left = []
    monkeypatch.setattr(atexit, "register", lambda *call, **options: left.append((call, options)))
    monkeypatch.setattr(
        sys.modules[micro.__module__],
        "_lines",
        lambda format: SimpleNamespace(column=lambda name: pa.array([b"a", b"b"])),
    )
    source = micro_source("MQS", messages=3)
    rows = micro("MQS").run(source)["source"]
    assert column(rows, "payload") == [b"a", b"b", b"a"]
    assert set(column(rows, "topic")) == {"city"}
    ((remove, folder), options) = left[0]
    assert remove is shutil.rmtree and folder.is_dir() and options == {"ignore_errors": True}
    assert folder.name.startswith("riot_ops-mqs-")
    remove(folder)


CODES = [kind.code for kind in registered_tasks()] + [*t.PRESETS]


#: Tasks that reject some records of their example when it is repeated, each record a message of its own: some need values
#: that may be missing, a header line first or all parts of a message, others reject earlier times as late.
SOME_REJECTED = {"BAY", "BOL", "BSM", "CDT", "DCS", "IVJ", "KFN", "PDL", "RDR", "SLW", "TPK", "TRD"}


@pytest.mark.long
@pytest.mark.parametrize("code", CODES)
def test_every_task_accepts_its_input(code: str) -> None:
    flow = dataflows.micro(code)
    assert [n.kind for n in flow.nodes.values()] == ["source", "task", "sink"]
    summary = flow.run(micro_source(code, messages=300), sinks=DiscardSink()).summary
    assert summary.messages >= 300
    if code not in SOME_REJECTED:
        assert summary.errors == 0


def test_custom_parameters() -> None:
    task = t.KalmanFilter(by=("sensor_id",), process_noise=1.0)
    flow = micro("KAL", task)
    assert flow.nodes["kalman_filter"].task == task
    assert flow.run(micro_source("KAL", messages=10)).summary.rows == {"kalman_filter": 10}


def test_half_of_the_input_passes_the_bloom_filter() -> None:
    rows = micro("BLF").run(micro_source("BLF", messages=5000), sinks=DiscardSink()).summary.rows
    assert 2000 < rows["check_bloom_filter"] < 3000


def test_assembling_completes_every_message() -> None:
    rows = micro("JON").run(micro_source("JON", messages=1000), sinks=DiscardSink()).summary.rows
    assert rows == {"assemble_message": 1000}


def test_unknown_code_is_refused() -> None:
    with pytest.raises(ConfigError, match="unknown task 'KALL'"):
        micro("KALL")

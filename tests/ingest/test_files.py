"""Sources of files: every option, every kind of bad row, restarts in the middle, bounded memory."""

from __future__ import annotations

import datetime as dt
import gzip
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError

US = pa.timestamp("us", tz="UTC")
SCHEMA = {"device": "string", "event_time": "timestamp[us, tz=UTC]", "value": "double"}


def at(ms):
    return dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(milliseconds=ms)


def flow(schema=None):
    dataflow = ro.Dataflow("files")
    rows = dataflow.source("rows", schema=schema or SCHEMA)
    return (
        dataflow.sink("out", rows, rows.to(t.MovingAverage(by=("device",), window=2), id="avg"))
        if schema is None
        else (dataflow.sink("out", rows))
    )


def ran(source, schema=None, **options):
    result = flow(schema).run(source, **options)
    errors = sorted(zip(*(result.errors[n].to_pylist() for n in ("seq", "reason", "message", "raw")), strict=True))
    return result["rows"].to_pylist(), errors


def rows(*values):
    return [{"seq": i, "device": d, "event_time": None if ms is None else at(ms), "value": v} for i, d, ms, v in values]


CSV = b"""device,at,value,extra
a,1000,1.5,x
b,2000.5,warm,x
c,1,2,3,4
"d ""\xc3\xbc"",
e", 3000 ,-2e1,x
,,,
"",soon,1,x
\xff,5000,1,x

short
g,7000,7,
"""
GOOD = rows((0, "a", 1000, 1.5), (3, 'd "ü",\ne', 3000, -20.0), (4, None, None, None), (8, "g", 7000, 7.0))
BAD = [
    (1, "wrong_type", "value = 'warm' (str) is not of type double"),
    (2, "malformed", "5 cells, there are 4 columns"),
    (5, "wrong_type", "at = 'soon' (str) is not of type double"),
    (6, "invalid_utf8", "device = b'\\xff' (bytes) is not UTF-8"),
    (7, "malformed", "1 cells, there are 4 columns"),
]


@pytest.mark.long
@pytest.mark.parametrize("batch_size", [1, 3, 65_536])
def test_csv_rejects_every_kind_of_bad_row(tmp_path, batch_size):
    file = tmp_path / "readings.csv"
    file.write_bytes(CSV)
    good, errors = ran(ro.read(file, time="at", time_unit="ms"), batch_size=batch_size)
    assert good == GOOD
    assert [e[:3] for e in errors] == BAD
    assert [errors[i][3] for i in (1, 4)] == ["c,1,2,3,4", "short"], "the original text of the row"
    assert '"value": "warm"' in errors[0][3]


def test_csv_options(tmp_path):
    file = tmp_path / "readings.txt"
    file.write_bytes("ä;1,5;-\nNA;1;NA\n".encode("latin-1"))
    schema = {"device": "string", "value": "string", "more": "string"}
    source = ro.read(
        file, format="csv", header=["device", "value", "more"], delimiter=";", null_values=["NA"], encoding="latin-1"
    )
    assert ran(source, schema)[0] == [
        {"seq": 0, "device": "ä", "value": "1,5", "more": "-"},
        {"seq": 1, "device": None, "value": "1", "more": None},
    ]
    source = ro.read(file, format="csv", header=["device", "value", "more"], delimiter=";")
    assert [e[1] for e in ran(source, schema)[1]] == ["invalid_utf8"]
    assert ran(source, schema)[0][0]["more"] == "NA", "only an empty cell means null"


@pytest.mark.parametrize(
    ("unit", "text", "time"),
    [
        (None, "1970-01-01T00:00:01Z", 1000),
        (None, "1970-01-01 00:00:01.5", 1500),
        ("s", "1.5", 1500),
        ("s", "1", 1000),
        ("ms", "1000", 1000),
        ("us", "1000000", 1000),
        ("ns", "1000000999", 1000),
        ("ms", "-1500", -1500),
    ],
)
def test_time_units(tmp_path, unit, text, time):
    (tmp_path / "a.csv").write_text(f"device,at,value\na,{text},1\n")
    quoted = f'"{text}"' if unit is None else text
    (tmp_path / "a.jsonl").write_text(f'{{"device":"a","at":{quoted},"value":1}}\n')
    for name in ("a.csv", "a.jsonl"):
        good, errors = ran(ro.read(tmp_path / name, time="at", time_unit=unit))
        assert (good, errors) == (rows((0, "a", time, 1.0)), [])


def test_parquet_numbers_become_times(tmp_path):
    for column in (pa.array([1, None]), pa.array([1.0, None]), pa.array([1, None], pa.int32())):
        pq.write_table(pa.table({"device": ["a", "b"], "at": column, "value": [1.0, 2.0]}), tmp_path / "a.parquet")
        good, errors = ran(ro.read(tmp_path / "a.parquet", time="at", time_unit="s"))
        assert (good, errors) == (rows((0, "a", 1000, 1.0), (1, "b", None, 2.0)), [])


def test_json_lines_reject_bad_lines_and_cells(tmp_path):
    file = tmp_path / "a.jsonl.gz"
    lines = [
        '{"device":"a","event_time":"1970-01-01T00:00:01Z","value":1}',
        "",
        '{"device":"b","value":"warm","more":{"x":[1]}}',
        '{"device":"c","value":2.5,"event_time":null}',
        "[1, 2]",
        '{"device":',
        '{"device":"\\ud800","value":1}',
        '{"value":7}',
        "null",
    ]
    file.write_bytes(gzip.compress("\r\n".join(lines).encode() + b'\n{"device":"\xff"}'))
    good, errors = ran(file)
    assert good == rows((0, "a", 1000, 1.0), (2, "c", None, 2.5), (6, None, None, 7.0))
    assert [e[:2] for e in errors] == [
        (1, "wrong_type"),
        (3, "malformed"),
        (4, "malformed"),
        (5, "malformed"),
        (7, "malformed"),
        (8, "malformed"),
    ]
    assert errors[1][3] == "[1, 2]"
    assert errors[5][3] == '{"device":"\\xff"}'
    names = {f.name: str(f.type) for f in ro.read(file).schema}
    assert names["value"] == "string", "the values have several types"
    assert names["device"] == "string"


def test_parquet_reads_row_groups_and_only_declared_columns(tmp_path):
    table = pa.table(
        {
            "junk": [[i] for i in range(100)],
            "device": pa.array(["a", "b"] * 50).dictionary_encode(),
            "event_time": pa.array(range(100), pa.timestamp("ns")),
            "value": pa.array([float(i) for i in range(100)], pa.float32()),
        }
    )
    pq.write_table(table, tmp_path / "0.parquet", row_group_size=7)
    pq.write_table(table.slice(0, 3), tmp_path / "1.parquet")
    for path in (tmp_path, tmp_path / "*.parquet", [tmp_path / "0.parquet", str(tmp_path / "1.parquet")]):
        good, errors = ran(ro.read(path), batch_size=10)
        assert [r["seq"] for r in good] == list(range(103))
        assert [r["value"] for r in good] == [float(i) for i in [*range(100), *range(3)]]
        assert errors == []


def write(folder, name, count):
    """Write the same records in a format, to two files."""
    texts = [f"{'ab'[i % 2]},{1000 * i},{'x' if i % 50 == 7 else i}" for i in range(count)]
    for part in range(2):
        some = texts[part * count // 2 : (part + 1) * count // 2]
        file = folder / f"{part}.{name}"
        if name == "csv":
            file.write_text("device,event_time,value\n" + "".join(f"{line}\n" for line in some))
        elif name == "jsonl":
            cells = [line.split(",") for line in some]
            file.write_text("".join(f'{{"device":"{d}","event_time":{e},"value":"{v}"}}\n' for d, e, v in cells))
        else:
            columns = list(zip(*(line.split(",") for line in some), strict=True))
            names = ["device", "event_time", "value"]
            pq.write_table(pa.table(dict(zip(names, columns, strict=True))), file, row_group_size=30)
    return folder


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet"])
def test_any_range_can_be_read_again_in_another_process(tmp_path, name):
    folder = write(tmp_path, name, 200)
    kwargs = {} if name == "jsonl" else {"time": "event_time", "time_unit": "us"}
    source = ro.read(folder, **kwargs).project(flow().nodes["rows"].schema)
    end = source.latest(source.initial())
    (whole,) = source.splits(source.initial(), end, 1)
    wanted = [row for batch in source.read(whole) for row in batch.to_pylist()]
    assert len(wanted) == 200
    assert source.count(source.initial(), end) == 200
    assert source.finished(end)
    assert not source.finished(source.latest(source.initial(), 199))
    assert not source.waits()
    for row in (0, 1, 99, 100, 101, 163, 199):
        start = source.latest(source.initial(), row)
        other = pickle.loads(pickle.dumps(source))
        assert not other.finished(start)
        near = other.latest(start, 10)
        assert near["row"] == min(row + 10, 200)
        (part,) = pickle.loads(pickle.dumps(source)).splits(start, near, 1)
        again = [one for batch in pickle.loads(pickle.dumps(source)).read(part) for one in batch.to_pylist()]
        assert again == wanted[row : row + 10]
        for split in source.splits(start, end, 3):
            found = [row for batch in other.read(split) for row in batch.to_pylist()]
            assert [r["seq"] for r in found] == list(range(split["start"], split["end"]))
            assert [r["value"] for r in found] == [r["value"] for r in wanted[split["start"] : split["end"]]]
    assert pickle.loads(pickle.dumps(source)).finished(end)


@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet"])
def test_run_continues_at_its_checkpoint(tmp_path, name):
    folder = write(tmp_path, name, 200)
    kwargs = {} if name == "jsonl" else {"time": "event_time", "time_unit": "us"}
    at_once = flow().run(ro.read(folder, **kwargs))
    assert at_once["rows"].num_rows == 196 and at_once["avg"].num_rows == 98

    class Stop(Exception):
        pass

    def stop(summary):
        if summary.messages >= 120:
            raise Stop

    options = {"checkpoint": tmp_path.parent / f"{tmp_path.name}-{name}", "out": tmp_path.parent / f"{name}-out"}
    with pytest.raises(Stop):
        flow().run(ro.read(folder, **kwargs), batch_size=20, epoch_rows=20, progress=stop, **options)
    result = flow().run(ro.read(folder, **kwargs), **options)
    assert 0 < result.summary.messages < 200
    for stream in ("rows", "avg", "errors"):
        assert result[stream].sort_by("seq").to_pylist() == at_once[stream].sort_by("seq").to_pylist()


@pytest.mark.long
@pytest.mark.parametrize("name", ["csv", "jsonl", "parquet"])
def test_memory_does_not_grow_with_the_file(tmp_path, name):
    folder = write(tmp_path, name, 60_000)
    source = ro.read(folder).project(flow().nodes["rows"].schema)
    before, most, at, held = pa.total_allocated_bytes(), 0, source.initial(), 0
    while not source.finished(at):
        end = source.latest(at, 500)
        for split in source.splits(at, end, 1):
            for batch in source.read(split):
                held += batch.num_rows
                most = max(most, pa.total_allocated_bytes() - before)
        at = end
    assert held == 60_000
    assert most < 40 << 20


@pytest.mark.long
@pytest.mark.parametrize("name", ["jsonl", "parquet"])
def test_large_records_form_small_batches(tmp_path, name):
    """For any limit of records: 600 records of 200 kB are 120 MB."""
    texts = [bytes(97 + (i * j) % 23 for j in range(200)).decode() * 1000 for i in range(600)]
    if name == "parquet":
        pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet", use_dictionary=False)
    else:
        (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    source = ro.read(tmp_path).project(pa.schema({"text": pa.string()}))
    before, most, at, found = pa.total_allocated_bytes(), 0, source.initial(), []
    while not source.finished(at):
        end = source.latest(at)
        most = max(most, pa.total_allocated_bytes() - before)
        for split in source.splits(at, end, 1):
            found += [text for batch in source.read(split) for text in batch.column("text").to_pylist()]
        at = end
    assert found == texts
    assert most < 100 << 20


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"format": "xml"}, "format must be csv, parquet or jsonl, got 'xml'"),
        ({"format": "cvs"}, 'did you mean "csv"'),
        ({"time": "att"}, r"lacks the column 'att', named by time; it has device, at, value; did you mean"),
        ({"time": "at", "time_unit": "min"}, "time_unit must be s, ms, us or ns, got 'min'"),
        ({"time_unit": "ms"}, "time_unit applies to the column named by time; give time as well"),
        ({"delimiter": ";;"}, "delimiter must be one ASCII character"),
        ({"delimiter": '"'}, "delimiter must be one ASCII character"),
        ({"header": ["a", "a"]}, "header must name each column once"),
        ({"header": "ab"}, "header must name each column once"),
        ({"null_values": "NA"}, "null_values must be a list of texts, got 'NA'"),
        ({"encoding": "utf-9"}, "encoding must be one of text .* got 'utf-9'"),
    ],
    ids=str,
)
def test_invalid_options_are_refused(tmp_path, options, text):
    (tmp_path / "a.csv").write_text("device,at,value\na,1,1\n")
    with pytest.raises(ConfigError, match=text):
        ro.read(tmp_path / "a.csv", **options)


def test_options_of_another_format_are_refused(tmp_path):
    pq.write_table(pa.table({"at": pa.array([0], US), "event_time": pa.array([0], US)}), tmp_path / "a.parquet")
    for name, value in (("header", ["a"]), ("delimiter", ";"), ("null_values", ["-"]), ("encoding", "latin-1")):
        with pytest.raises(ConfigError, match=f"{name} applies to CSV only, the files are parquet"):
            ro.read(tmp_path / "a.parquet", **{name: value})
    with pytest.raises(ConfigError, match=r"time_unit is for numbers, the column 'at' of .* holds timestamp"):
        ro.read(tmp_path / "a.parquet", time="at", time_unit="ms")
    with pytest.raises(ConfigError, match="has a column 'event_time' beside 'at', named by time"):
        ro.read(tmp_path / "a.parquet", time="at")


def test_unreadable_files_are_named(tmp_path):
    with pytest.raises(ConnectorError, match="no such file"):
        ro.read(tmp_path / "none.csv")
    (tmp_path / "data.bin").write_bytes(b"1000,x\n")
    with pytest.raises(ConfigError, match=r"pass format='csv', 'parquet' or 'jsonl'.* riot_ops\.streams\.replay"):
        ro.read(tmp_path / "data.bin")
    (tmp_path / "empty.csv").write_bytes(b"")
    (tmp_path / "no.parquet").write_bytes(b"PAR1 or not")
    (tmp_path / "packed.csv.gz").write_bytes(b"not packed")
    for name in ("empty.csv", "no.parquet", "packed.csv.gz"):
        with pytest.raises(ConnectorError, match=f"cannot read .*{name}: "):
            ro.read(tmp_path / name)
    (tmp_path / "a.csv").write_text("device,device,value\na,b,1\n")
    with pytest.raises(ConfigError, match="'rows' has 2 fields 'device'"):
        flow({"device": "string"}).run(tmp_path / "a.csv")
    (tmp_path / "b.csv").write_text("devise,value\na,1\n")
    with pytest.raises(ConfigError, match=r"lacks the field 'device'; .*did you mean \"devise\""):
        flow({"device": "string"}).run(tmp_path / "b.csv")
    (tmp_path / "b.jsonl").write_text('{"devise":1}\n')
    with pytest.raises(ConfigError, match=r"lacks the field 'device'; .*did you mean \"devise\""):
        flow({"device": "string"}).run(tmp_path / "b.jsonl")


@pytest.mark.parametrize("name", ["header.csv", "empty.jsonl", "empty.parquet"])
def test_files_without_records_give_empty_streams(tmp_path, name):
    file = tmp_path / name
    if name == "empty.parquet":
        pq.write_table(pa.table({"device": pa.array([], pa.string()), "value": pa.array([], pa.int64())}), file)
    else:
        file.write_text("device,value\n" if name == "header.csv" else "\n")
    assert ran(file, {"device": "string", "value": "double"}) == ([], [])


def test_byte_order_mark_before_json_lines_is_skipped(tmp_path):
    (tmp_path / "x.jsonl").write_bytes(b'\xef\xbb\xbf{"v": 1}\n{"v": 2}\n')
    flow = ro.Dataflow("any")
    flow.sink("out", flow.source("in", schema={"v": "double"}))
    result = flow.run(ro.read(tmp_path / "x.jsonl"))
    assert (result["in"]["v"].to_pylist(), result.errors.num_rows) == ([1.0, 2.0], 0)


def test_rows_of_another_encoding_are_rejected(tmp_path):
    (tmp_path / "a.csv").write_bytes("device,value\nAé,1\n".encode("cp1252") + b"B\x81,2\n" + b"\x80,3\n")
    flow = ro.Dataflow("read")
    flow.sink("out", flow.source("rows", schema={"device": "string", "value": "double"}))
    result = flow.run(ro.read(tmp_path / "a.csv", encoding="cp1252"))
    assert result["rows"].to_pylist() == [
        {"seq": 0, "device": "Aé", "value": 1.0},
        {"seq": 2, "device": "€", "value": 3.0},
    ]
    [error] = result.errors.to_pylist()
    assert (error["seq"], error["reason"]) == (1, "invalid_encoding")
    assert error["message"] == r"device = b'B\x81' (bytes) is not in the encoding cp1252"
    (tmp_path / "b.csv").write_bytes("device,value\nAé,1\n".encode("utf-16"))
    assert flow.run(ro.read(tmp_path / "b.csv", encoding="utf-16"))["rows"]["device"].to_pylist() == ["Aé"]
    (tmp_path / "c.csv").write_bytes("device,value\nAé,1\n".encode("utf-16")[:-1])
    with pytest.raises(ConnectorError, match=r"cannot read .*c\.csv: .*truncated"):
        flow.run(ro.read(tmp_path / "c.csv", encoding="utf-16"))


@pytest.mark.long
def test_long_files_of_another_encoding_are_read(tmp_path):
    rows = [f"{'é' * (1 + i % 50)},{i}" for i in range(120_000)]
    (tmp_path / "long.csv").write_text("\n".join(["name,n", *rows]), encoding="utf-16")
    flow = ro.Dataflow("read")
    flow.sink("out", flow.source("rows", schema={"name": "string", "n": "int64"}))
    found = flow.run(ro.read(tmp_path / "long.csv", encoding="utf-16"))["rows"].sort_by("seq")
    assert found["n"].to_pylist() == list(range(120_000))
    assert found["name"].to_pylist() == [row.partition(",")[0] for row in rows]


@pytest.mark.parametrize(
    ("unit", "texts", "micros"),
    [
        ("s", ["1714564860.1234569", "-0.0000001", "1714564861", "1.5e3", "9007199254.740993"],
         [1714564860123456, -1, 1714564861000000, 1500000000, 9007199254740993]),
        ("ms", ["1714564860123.4569", "9007199254740.993", "2"], [1714564860123456, 9007199254740993, 2000]),
        ("ns", ["1329929188967032999", "0.5", "-1"], [1329929188967032, 0, -1]),
    ],
)  # fmt: skip
def test_decimal_epochs_are_exact_beside_any_other(unit, texts, micros, tmp_path):
    flow = ro.Dataflow("read")
    flow.sink("out", flow.source("rows", schema={"event_time": "timestamp[us, tz=UTC]", "n": "int64"}))
    for rows in (list(zip(texts, micros, strict=True)), *([one] for one in zip(texts, micros, strict=True))):
        path = tmp_path / f"{len(rows)}-{rows[0][1]}.csv"
        path.write_text("at,n\n" + "".join(f"{text},{i}\n" for i, (text, _) in enumerate(rows)))
        found = flow.run(ro.read(path, time="at", time_unit=unit))["rows"].sort_by("n")
        assert found["event_time"].cast(pa.int64()).to_pylist() == [wanted for _, wanted in rows]


def test_header_larger_than_a_block_is_read(tmp_path):
    names = [f"c{i}_" + "x" * 1_500_000 for i in range(3)]
    (tmp_path / "a.csv").write_text(f"{','.join(names)}\n1,2,3\n4,5,6\n")
    source = ro.read(tmp_path / "a.csv")
    assert [row[names[2]] for row in ran(source, dict.fromkeys(names, "int64"))[0]] == [3, 6]


def test_number_of_another_encoding_is_rejected(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"device,value\nA,1,5\n".replace(b"1,5", b'"1,5"') + b'B,"2,\x81"\n')
    source = ro.read(tmp_path / "a.csv", encoding="cp1252", decimal=",")
    good, errors = ran(source, {"device": "string", "value": "double"})
    assert [row["value"] for row in good] == [1.5]
    assert [e[:3] for e in errors] == [
        (1, "invalid_encoding", r"value = b'2,\x81' (bytes) is not in the encoding cp1252")
    ]

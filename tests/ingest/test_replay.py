"""Replay of files, compared with splitting lines in plain Python."""

import gzip
import json
import pickle

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError, StateError
from riot_ops.core.schema import RAW, TIMESTAMP
from riot_ops.streams import ReplaySource, city, replay, write
from tests.samples import MADE, expected
from tests.search import depth


def naive(contents, header=False):
    """Read files line by line: (seq, ms or None, line)."""
    records = []
    for content in contents:
        lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
        lines = [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
        for line in lines[1:] if header else lines:
            head, comma, _ = line.partition(b",")
            number = head.removeprefix(b"-")
            known = bool(comma) and number.isdigit() and head.isascii() and len(number) <= 15
            records.append((len(records), int(head) if known else None, line))
    return records


def rows(batches):
    found = []
    for b in batches:
        assert b.schema == RAW
        assert b.num_rows > 0
        times = b.column("event_time").cast(TIMESTAMP).cast("int64").to_pylist()
        found += zip(
            b.column("seq").to_pylist(),
            [None if t is None else t // 1000 for t in times],
            b.column("payload").to_pylist(),
            strict=True,
        )
    return found


def read(source, start=None, end=None, n=1):
    start = source.initial() if start is None else start
    end = source.latest(start) if end is None else end
    splits = source.splits(start, end, n)
    assert len(splits) <= n
    copy = pickle.loads(pickle.dumps(source))  # another process reads the splits
    splits = json.loads(json.dumps(splits))
    return rows(b for s in splits for b in copy.read(s))


line = st.one_of(st.binary(max_size=12), st.integers(-(10**6), 10**13).map(lambda ms: f"{ms},x".encode()))
mark = st.sampled_from([b"", b"\xef\xbb\xbf", b"\xef\xbb"])
content = st.builds(bytes.__add__, mark, st.lists(line, max_size=12).map(b"\n".join))


@settings(max_examples=depth(80), deadline=None)
@given(st.lists(content, min_size=1, max_size=3), st.integers(1, 5), st.integers(1, 7), st.booleans())
def test_all_lines_are_read_for_any_files_and_steps(tmp_path_factory, contents, n, step, header):
    folder = tmp_path_factory.mktemp("files")
    for i, data in enumerate(contents):
        (folder / f"part-{i}").write_bytes(data)
    expected = naive(contents, header)
    source = ReplaySource(folder, has_header=header)
    assert read(source, n=n) == expected
    at, found = source.initial(), []
    while not source.finished(at):
        end = source.latest(at, step)
        assert json.loads(json.dumps(end)) == end
        assert source.count(at, end) == min(step, len(expected) - len(found))
        found += read(source, at, end, n)
        at = end
    assert found == expected
    assert source.latest(at) == at
    assert source.splits(at, at, 3) == []
    assert at == source.latest(source.initial())


def test_sample_is_read_from_its_first_line(sample_data):
    path = sample_data / "riotbench" / "SYS_sample_data_senml.csv"
    found = read(replay(path), n=7)
    assert found == naive([path.read_bytes()])
    assert len(found) == expected(sample_data, made=50, papers=1000)
    assert found[0][1] == expected(sample_data, made=1_422_316_803_413, papers=1_422_748_800_000)
    assert all(int(line.partition(b",")[0]) == ms for _, ms, line in found)
    if sample_data != MADE:
        assert all(json.loads(line.partition(b",")[2])["bt"] == ms for _, ms, line in found)
    taxi = sample_data / "riotbench" / "TAXI_sample_data_senml.csv"  # no final newline
    both = read(replay([path, taxi]), n=3)
    assert [r[0] for r in both] == list(range(expected(sample_data, made=76, papers=2000)))
    assert both[-1][2] == taxi.read_bytes().splitlines()[-1]


@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", 0),
        (b"\n", 1),
        (b"1,a", 1),
        (b"1,a\n", 1),
        (b"1,a\n\n", 2),
        (b"1,a\r\n2,b\r\n", 2),
        (b"1,a\r\n2,b", 2),
        (b"\n\n\n", 3),
        (b"1,\xff\xfe\x00\n", 1),
    ],
)
def test_line_breaks(tmp_path, data, lines):
    file = tmp_path / "x"
    file.write_bytes(data)
    found = read(replay(file))
    assert len(found) == lines
    assert b"".join(r[2] for r in found) == data
    assert replay(file).finished(replay(file).initial()) == (lines == 0)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1422748800000,{}", 1422748800000),
        ("-5,x", -5),
        ("0,", 0),
        ("12", None),
        (",1", None),
        ("", None),
        ("-,1", None),
        (" 5,x", None),
        ("5 ,x", None),
        ("1.5,x", None),
        ("2015-02-01T00:00:00Z,x", None),
        ("1" * 16 + ",x", None),
        ("999999999999999,x", 999999999999999),
    ],
)
def test_leading_time_is_parsed(tmp_path, text, ms):
    file = tmp_path / "x"
    file.write_text(text + "\n")
    [(_, found, payload)] = read(replay(file))
    assert found == ms
    assert payload == text.encode() + b"\n"


def test_compressed_files_and_unicode_paths(tmp_path):
    folder = tmp_path / "données ü 数据"
    folder.mkdir()
    (folder / "a.csv").write_bytes(b"1,a\n2,b")
    with gzip.open(folder / "b.csv.gz", "wb") as f:
        f.write(b"3,c\n4,d\n")
    (folder / "c.csv").write_bytes(b"")
    expected = [(0, 1, b"1,a\n"), (1, 2, b"2,b"), (2, 3, b"3,c\n"), (3, 4, b"4,d\n")]
    for n in (1, 2, 3, 9):
        assert read(replay(folder), n=n) == expected
    assert read(replay(folder / "*.csv*")) == expected
    assert read(replay([folder / "b.csv.gz", str(folder / "a.csv")]))[0] == (0, 3, b"3,c\n")


def test_repeat_shifts_times_and_numbers(tmp_path):
    (tmp_path / "a").write_bytes(b"5000,a\nx\n")
    (tmp_path / "b").write_bytes(b"1000,b\n")
    source = replay(tmp_path, repeat=3)
    found = read(source, n=4)
    # from 1000 to 5000 ms: each repetition is 5 s later
    assert [r[1] for r in found] == [5000, None, 1000, 10_000, None, 6000, 15_000, None, 11_000]
    assert [r[0] for r in found] == list(range(9))
    assert [r[2] for r in found] == [
        *(b"5000,a\n", b"x\n", b"1000,b\n"),
        *(b"10000,a\n", b"x\n", b"6000,b\n"),
        *(b"15000,a\n", b"x\n", b"11000,b\n"),
    ]
    at = source.latest(source.initial(), 4)
    assert (at["file"], at["byte"], at["line"]) == (2, 7, 4)
    assert source.time_at(source.latest(source.initial(), 3)) == 10_000_000
    assert read(source, at, source.latest(at, 3), 2) == found[4:7]


@pytest.mark.parametrize(
    ("line", "later"),
    [
        (b'1422316801377,{"bt":1422316801377}', b'1422316802377,{"bt":1422316802377}'),
        (b'1422316801377,{"bt":"1422316801377"}', b'1422316802377,{"bt":"1422316802377"}'),
        (b"1422316801377,14223168013770,21422316801377", b"1422316802377,14223168013770,21422316801377"),
        (b"5000,5000 items", b"6000,5000 items"),  # by chance
        (b"9999999999999,9999999999999", b"10000000000999,10000000000999"),
        (b"-500,x", b"500,x"),
        (b"-1500,-1500", b"-500,-1500"),
        (b"0,0", b"1000,0"),
        (b"no time,1422316801377", b"no time,1422316801377"),
        ("1422316801377,é\t".encode(), "1422316802377,é\t".encode()),
    ],
)
def test_repeat_advances_times_in_the_payload(line, later, tmp_path):
    (tmp_path / "a").write_bytes(line + b"\r\n\n")
    found = read(replay(tmp_path / "a", repeat=2))
    assert [r[2] for r in found] == [line + b"\r\n", b"\n", later + b"\r\n", b"\n"]


def test_copies_of_messages_are_not_late(tmp_path):
    lines = [
        b'%d,{"e":[{"n":"source","sv":"a"},{"n":"light","v":"1"}],"bt":%d}' % (t, t) for t in (10**12, 10**12 + 500)
    ]
    (tmp_path / "a").write_bytes(b"\n".join(lines))
    flow = ro.Dataflow("copies")
    flow.sink("out", flow.source("city").to(t.ParseSenML(schema="city", layout="wide"), id="parse"))
    parsed = flow.run(replay(tmp_path / "a", repeat=3))["parse"]
    assert parsed["event_time"].cast(pa.int64()).to_pylist() == [
        10**15 + 1000 * ms for ms in (0, 500, 1500, 2000, 3000, 3500)
    ]


def test_until_stops_before_the_first_later_record(tmp_path):
    (tmp_path / "a").write_bytes(b"1,a\n2,b\nx\n2,c\n4,d\n")
    (tmp_path / "b").write_bytes(b"5,e\n")
    source = replay(tmp_path)
    start = source.initial()
    assert [source.until(start, t * 1000)["line"] for t in range(7)] == [0, 1, 4, 4, 5, 6, 6]
    assert source.until(start, 9000, 3)["line"] == 3
    assert source.time_at(source.latest(start)) is None


def test_growing_file_is_followed(tmp_path):
    file = tmp_path / "log"
    file.write_bytes(b"")
    source = replay(file, follow=True)
    at = source.initial()
    found = []
    for piece, lines in [(b"1,a", 0), (b"b\n2,", 1), (b"", 1), (b"\n\n3,c\n4", 4), (b",d\n", 5)]:
        with file.open("ab") as f:
            f.write(piece)
        end = source.latest(at)
        assert end["line"] == lines
        assert not source.finished(end)
        found += read(source, at, end, 2)
        at = end
    assert found == naive([file.read_bytes()])
    file.write_bytes(b"1,a\n")
    with pytest.raises(
        StateError, match=r"log is not the file that was read: it has 4 bytes, fewer than the \d+ it had"
    ):
        source.latest(at)


@pytest.mark.parametrize("header", [False, True])
def test_file_with_an_incomplete_first_line_is_followed(header, tmp_path):
    file = tmp_path / "log"
    file.write_bytes(b"")
    source = ReplaySource(file, has_header=header, follow=True)
    at, found = source.initial(), []
    for piece in [b"\xef", b"\xbb\xbfti", b"me\n1,", b"a\n2,b\n"]:
        with file.open("ab") as f:
            f.write(piece)
        end = source.latest(at)
        found += read(source, at, end, 2)
        at = end
    assert found == naive([file.read_bytes()], header)
    assert found[-2:] == [(1 - header, 1, b"1,a\n"), (2 - header, 2, b"2,b\n")]


def test_truncated_file_is_refused(tmp_path):
    file = tmp_path / "log"
    file.write_bytes(b"1,a\n2,b\n")
    source = replay(file)
    split = source.splits(source.initial(), source.latest(source.initial()), 1)[0]
    source.close()
    file.write_bytes(b"1,a\n")
    with pytest.raises(ConnectorError, match="log has 4 bytes, fewer than the 8"):
        list(source.read(split))


def test_file_of_many_lines(tmp_path):
    file = tmp_path / "many"
    n = 100_000
    file.write_bytes(b"".join(b"%d,%s\n" % (i, b"x" * (i % 40)) for i in range(n)))
    source = replay(file)
    end = source.latest(source.initial())
    assert end["line"] == n and source.finished(end)
    assert source.latest(source.initial(), n - 1)["line"] == n - 1
    fresh = replay(file)
    splits = fresh.splits(fresh.initial(), end, 5)
    sizes = [s["parts"][0]["end"] - s["parts"][0]["start"] for s in splits]
    assert max(sizes) - min(sizes) < 200
    assert rows(b for s in splits for b in fresh.read(s)) == naive([file.read_bytes()])


def test_payload_is_not_copied(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(b"1,a\n" * 1000)
    source = replay(file)
    [split] = source.splits(source.initial(), source.latest(source.initial()), 1)
    first, second = next(source.read(split)), next(source.read(split))
    assert first.column("payload").buffers()[2].address == second.column("payload").buffers()[2].address
    source.close()
    source.close()
    assert first.column("payload")[999].as_py() == b"1,a\n"  # the batch keeps the file mapped


@pytest.mark.long
def test_written_stream_is_read_back_unchanged(tmp_path):
    source = city(sensors=30)
    for name in ("city.csv", "city.csv.gz"):
        assert write(source, tmp_path / name, 20_000) == 20_000
        again = read(replay(tmp_path / name), n=3)
        direct = rows(source.read({"start": 0, "end": 20_000}))
        assert [(s, t, p + b"\n") for s, t, p in direct] == again
    assert write(replay(tmp_path / "city.csv.gz"), tmp_path / "copy") == 20_000
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "city.csv").read_bytes()
    assert write(replay(tmp_path / "copy", rate=1), tmp_path / "part", 7) == 7
    with pytest.raises(ConfigError, match="no end"):
        write(source, tmp_path / "endless")


def test_invalid_arguments_are_refused(tmp_path):
    with pytest.raises(ConnectorError, match=r"no such file: .*nowhere\.csv"):
        replay(tmp_path / "nowhere.csv")
    with pytest.raises(ConnectorError, match="no such file"):
        replay(str(tmp_path / "*.csv"))
    with pytest.raises(ConfigError, match="no path"):
        replay([])
    (tmp_path / "a").write_bytes(b"1,a\n")
    with pytest.raises(ConfigError, match="repeat must be a whole number >= 1, got 0"):
        replay(tmp_path / "a", repeat=0)
    with pytest.raises(ConfigError, match="follow"):
        replay(tmp_path / "a", repeat=2, follow=True)
    (tmp_path / "b.gz").write_bytes(b"not gzip")
    with pytest.raises(ConnectorError, match=r"b\.gz cannot be unpacked"):
        replay(tmp_path / "b.gz").initial()


def test_task_parses_the_times_of_another_format(tmp_path):
    """Pacing uses the parsed times; the records themselves have no event time."""
    path = tmp_path / "sensors.csv"
    path.write_text("7,1970-01-01T00:00:01\n8,bad\n9,1970-01-01T00:00:03\n7,1970-01-01T00:00:09\n")
    fields = {"id": (0, "int64"), "event_time": (1, "iso")}
    source = ReplaySource(path, times=t.ParseLines(schema=fields))
    start = source.initial()
    assert source.time_at(start) == 1_000_000
    assert source.count(start, source.until(start, 3_000_000)) == 3
    assert source.count(start, source.until(start, 2_999_999)) == 2
    (split,) = source.splits(start, source.latest(start), 1)
    (batch,) = source.read(split)
    assert batch["event_time"].null_count == 4
    assert ReplaySource(path).time_at(start) == 7000
    twice = ReplaySource(path, times=t.ParseLines(schema=fields), repeat=2)
    assert twice.time_at({"file": 1, "byte": 0, "line": 4}) == 1_000_000 + 9_000_000


CAFE = "1000,café\n".encode("latin-1")


@pytest.mark.parametrize("codec", ["latin-1", "cp1252", "shift_jis", "iso2022_jp"])
def test_lines_of_another_encoding_become_utf8(tmp_path, codec):
    path = tmp_path / "lines.csv"
    texts = ["1000,plain\n", f"2000,{'é' if codec in ('latin-1', 'cp1252') else 'あ'}\r\n", "3000,x"]
    path.write_bytes(b"".join(text.encode(codec) for text in texts))
    source = ReplaySource(path, encoding=codec)
    (split,) = source.splits(source.initial(), source.latest(source.initial()), 1)
    (batch,) = source.read(split)
    assert batch["payload"].to_pylist() == [text.encode() for text in texts]
    assert batch["event_time"].cast(pa.int64()).to_pylist() == [1_000_000, 2_000_000, 3_000_000]
    assert source.description()["encoding"] == codec


def test_lines_in_another_encoding_are_rejected(tmp_path):
    path = tmp_path / "lines.csv"
    path.write_bytes(b"1,tea\n" + CAFE + "3,€\n".encode("cp1252") + b"4,\x81\n")
    flow = ro.Dataflow("lines")
    flow.sink("out", flow.source("lines"))
    for codec, good in (("ascii", [0]), ("cp1252", [0, 1, 2]), ("latin-1", [0, 1, 2, 3])):
        result = flow.run(replay(path, encoding=codec))
        assert result["lines"]["seq"].to_pylist() == good
        errors = result.errors.to_pylist()
        assert [(e["seq"], e["reason"]) for e in errors] == [(i, "invalid_encoding") for i in range(4) if i not in good]
        assert {e["message"] for e in errors} <= {f"the line is not {codec}"}
        if codec == "ascii":
            assert "caf\\\\xe9" in errors[0]["raw"]


def test_encodings_without_ascii_line_breaks_are_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"1,a\n")
    for codec, text in (("utf-16", "line break of ASCII"), ("utf-9", "got 'utf-9'"), (None, "got None")):
        with pytest.raises(ConfigError, match=text):
            replay(tmp_path / "a", encoding=codec)


def test_times_of_lines_in_another_encoding_are_parsed(tmp_path):
    path = tmp_path / "sensors.csv"
    path.write_bytes("é,1970-01-01T00:00:01\n".encode("latin-1"))
    task = t.ParseLines(schema={"id": (0, "string"), "event_time": (1, "iso")})
    source = ReplaySource(path, times=task, encoding="latin-1")
    assert source.time_at(source.initial()) == 1_000_000
    assert ReplaySource(path, times=task).time_at(source.initial()) is None

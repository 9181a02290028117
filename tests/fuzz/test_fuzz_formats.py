"""CSV lines, replayed files, sketches and models against plain Python."""

from __future__ import annotations

import csv
import io
import json
import re

import numpy as np
import pyarrow as pa
import pytest

from riot_ops.core.errors import ModelError
from riot_ops.ingest.replay import ReplaySource
from riot_ops.kernels.text.csv.lines import csv_column, csv_lines
from riot_ops.models import LinearModel, TreeModel, model_from_bytes
from riot_ops.sketches.bloom import BloomFilter
from riot_ops.sketches.hyperloglog import HyperLogLog
from tests.fuzz.mutation import input_batches, mutate

ALPHABET = 'abcü漢😀,"\n\r ;1.'


def words(rng, n, longest=12):
    return ["".join(rng.choices(ALPHABET, k=rng.randint(0, longest))) for _ in range(n)]


@pytest.mark.long
def test_csv_lines_round_trip(rng, amount):
    """The standard library and csv_column read what csv_lines writes."""
    for _ in range(amount // 50):
        columns = [words(rng, 50) for _ in range(rng.randint(1, 4))]
        lines = csv_lines([pa.array(c, pa.string()) for c in columns])
        rows = list(csv.reader(io.StringIO("\n".join(lines.to_pylist()), newline=""), strict=True))
        if len(columns) > 1:  # the standard library skips empty lines
            assert rows == [list(row) for row in zip(*columns, strict=True)]
        for place, column in enumerate(columns):
            texts, found = csv_column(lines, place)
            assert found.all()
            # a line break at the end is not part of the last field unless it is quoted, as it is here
            assert texts.to_pylist() == column
        assert not csv_column(lines, len(columns))[1].any()


def test_csv_column_equals_the_standard_library(rng, amount):
    """csv_column reads the same fields as the standard library, if that accepts the line in strict mode."""
    seeds = [b"a,b,c", b'"a,b",c', b'"a ""b""",c', b"1422748800000,ci4,8.5", b'"",""', b",,"]
    for lines in input_batches(rng, amount, seeds, [b'"', b",", b'""', b'",', b',"', b" ", b"\xc3\xbc", b"x"]):
        texts = []
        for line in lines:
            text = line.decode("utf-8", "ignore").replace("\n", "").replace("\r", "").replace("\0", "")
            texts.append(text or "x")
        for place in (0, 1):
            got, found = csv_column(pa.array(texts), place)
            for text, value, has in zip(texts, got.to_pylist(), found.tolist(), strict=True):
                try:
                    (row,) = csv.reader([text], strict=True)
                except csv.Error:
                    continue
                if re.search(r'(^|,)[^",][^,]*"', text):  # a quote within an unquoted field: readers differ
                    continue
                assert (has, value) == ((True, row[place]) if place < len(row) else (False, "")), text


LINE = re.compile(rb"\s*(-?[0-9]{1,15}),")


def test_replay_reads_every_line_once(rng, amount, tmp_path):
    """Every line is read once, in order and unchanged, for any splits; its time is the number before the comma."""
    seeds = [b"1422748800000,a", b"-5,b", b"0,", b"17", b"", b"12 ,x", b"999999999999,{}", b"1.5,x"]
    path = tmp_path / "lines.csv"
    for i, lines in enumerate(input_batches(rng, amount, seeds, [b",", b"-", b"0", b" ", b"\r", b"9", b"\xff"])):
        ends = [rng.choice((b"\n", b"\n", b"\r\n")) for _ in lines]
        content = b"".join(line.replace(b"\n", b"") + end for line, end in zip(lines, ends, strict=True))
        if rng.random() < 0.3:
            content = content.removesuffix(b"\n")
        path = tmp_path / f"{i}.csv"
        path.write_bytes(content)
        wanted = content.split(b"\n")
        wanted = [part + b"\n" for part in wanted[:-1]] + ([wanted[-1]] if wanted[-1] else [])
        source = ReplaySource(path)
        got, numbers, times = [], [], []
        start = source.initial()
        while not source.finished(start):
            end = source.latest(start, rng.choice((None, 1, 5, 100)))
            for split in source.splits(start, end, rng.randint(1, 3)):
                for batch in source.read(split):
                    got += batch.column("payload").to_pylist()
                    numbers += batch.column("seq").to_pylist()
                    times += batch.column("event_time").cast(pa.int64()).to_pylist()
            if end == start:
                break
            start = end
        source.close()
        path.unlink()
        assert got == wanted
        assert numbers == list(range(len(wanted)))
        for line, time in zip(wanted, times, strict=True):
            found = re.match(rb"(-?[0-9]{1,12}),", line)
            if found:
                assert time == 1000 * int(found[1]), line
            elif not LINE.match(line) and not re.match(rb"[\s+\-0-9]+,", line):
                assert time is None, line


def test_bloom_filter_equals_a_set(rng, amount):
    n = min(amount, 200_000)
    inside = set(words(rng, n, 20))
    outside = [w for w in words(rng, n, 24) if w not in inside]
    one, left, right = (BloomFilter(len(inside), 0.01) for _ in range(3))
    values = sorted(inside)
    one.add(pa.array(values))
    left.add(pa.array(values[::2]))
    right.add(pa.array(values[1::2]))
    assert one.contains(pa.array(values)).all()
    assert one.contains(pa.array(outside)).mean() < 0.03
    for same in (left.merge(right), BloomFilter.from_bytes(one.to_bytes())):
        np.testing.assert_array_equal(same.words, one.words)


def test_hyperloglog_estimates_the_size_of_a_set(rng, amount):
    for _ in range(max(1, amount // 5000)):
        values = [rng.randrange(rng.choice((10, 1000, 10**6))) for _ in range(rng.randint(1, 5000))]
        one, left, right = (HyperLogLog(12) for _ in range(3))
        one.add(pa.array(values))
        cut = rng.randint(0, len(values))
        left.add(pa.array(values[:cut], pa.int64()))
        right.add(pa.array(values[cut:], pa.int64()))
        assert left.merge(right) == one
        assert HyperLogLog.from_bytes(one.to_bytes()) == one
        assert one.estimate() == pytest.approx(len(set(values)), rel=6 * one.standard_error, abs=2)


def test_mutated_models_are_refused_or_predict(rng, amount):
    """Damaged JSON is refused with ModelError; an accepted model equals its JSON, and predicts."""
    linear = LinearModel(inputs=("a", "b"), target="y", intercept=1.5, coefficients=(2.0, -0.5))
    tree = TreeModel(
        inputs=("a", "b"),
        target="y",
        classes=("lo", "hi"),
        left=(1, -1, -1),
        right=(2, -1, -1),
        feature=(0, 0, 0),
        threshold=(0.5, 0.0, 0.0),
        value=((0.5, 0.5), (1.0, 0.0), (0.0, 1.0)),
    )
    seeds = [linear.to_bytes(), tree.to_bytes()]
    tokens = [b'"', b"{", b"}", b"[", b"]", b",", b":", b"-1", b"1e999", b"null", b"NaN", b"0", b"99999999999", b"\xff"]
    accepted = 0
    for _ in range(amount):
        data = mutate(rng, rng.choice(seeds), tokens, seeds)
        try:
            model = model_from_bytes(data)
        except ModelError:
            continue
        accepted += 1
        document = json.loads(data)
        assert set(document["inputs"]) == set(model.inputs)
        assert model_from_bytes(model.to_bytes()) == model
        assert len(model.predict(np.zeros((3, len(model.inputs))))) == 3
    assert accepted > amount // 50

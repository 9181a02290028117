"""Plain Python has the results of the dataflows, with every option, on the shared files and on corrupted lines."""

from __future__ import annotations

import random

import pytest
from riot_bench.harness.validation import compare, plain_results, read_lines

from riot_ops.dataflows import application
from riot_ops.streams import generate, replay, write
from tests.search import seeds

SYNTHETIC = "dspbench/synthetic"
#: By application: shared files, and options.
CASES = [
    ("fd", {"cards": f"{SYNTHETIC}/credit-card.csv"}, {}),
    ("fd", {}, {"metric": "miss_rate", "threshold": 0.8, "window": 3}),
    ("fd", {}, {"metric": "entropy_reduction", "threshold": 0.9}),
    ("fd", {}, {"scope": "all", "threshold": 0.85}),
    ("fd", {}, {"model": "dspbench/fraud-markov-model.txt"}),
    ("sd", {"sensors": f"{SYNTHETIC}/sensors.dat"}, {}),
    ("sd", {}, {"window": 10, "threshold": 0.1}),
    ("sd", {}, {"quantity": "humidity", "threshold": 0.0}),
    ("rl", {name: f"{SYNTHETIC}/rl-{name}.csv" for name in ("events", "rewards")}, {}),
    ("rl", {}, {"rewards_first": True, "confidence_rounds": 200}),
    ("rl", {}, {"learner": "thompson", "min_samples": 20, "max_reward": 100, "seed": 4}),
    ("vs", {"calls": f"{SYNTHETIC}/voip-cdr.csv"}, {}),
    ("vs", {}, {"acd_mode": "short", "threshold": 4.0}),
    ("sf", {"training": f"{SYNTHETIC}/emails-training.jsonl", "analysis": f"{SYNTHETIC}/emails-analysis.jsonl"}, {}),
    ("sf", {}, {"max_words": 3, "threshold": 0.5, "unknown": 0.6, "min_probability": 0.2, "emit_empty": True}),
    ("ysb", {}, {}),
    ("ysb", {}, {"window": "1s", "event_type": "click", "ads": f"{SYNTHETIC}/ysb-ads.csv"}),
    ("lp", {"log": f"{SYNTHETIC}/http-server.log"}, {"geo": f"{SYNTHETIC}/geo-table.csv", "window": 5}),
    ("lp", {}, {"split_request": True, "window": 1}),
    ("lp", {}, {"emit": "update"}),
    ("ad", {name: f"{SYNTHETIC}/ad-clicks.tsv" for name in ("clicks", "impressions")}, {}),
    ("ad", {}, {"tick_every": 100, "window": "5s"}),
    ("ad", {}, {"emit": "each"}),
    ("sa", {"tweets": f"{SYNTHETIC}/tweets.jsonl"}, {"lexicon": "dspbench/AFINN-111.txt"}),
    ("sa", {}, {"mode": "counts", "languages": None}),
    ("sa", {}, {"mode": "counts", "neutral": True, "stop_words": ("good", "hate"), "keep_unknown": False}),
    ("sa", {}, {"phrases": True, "languages": ("de", "pt")}),
    ("bi", {}, {"calendar": "month", "first": "quote", "threshold": 100.0}),
    ("tm", {"traces": f"{SYNTHETIC}/taxi-grid.csv"}, {"roads": f"{SYNTHETIC}/roads-grid.csv"}),
    ("tm", {}, {"integer": True, "window": 5, "sigma": 1.5}),
    ("tm", {}, {"road_width": 1.0, "tolerance": 2.0, "box": (39.7, 40.0, 116.2, 116.6)}),
    ("mo", {"usage": f"{SYNTHETIC}/machine-usage.csv"}, {}),
    ("mo", {}, {"method": "top", "window": 3, "partial": False, "cpu_scale": 50.0, "memory_scale": 10.0}),
    ("mo", {}, {"scorer": "decayed", "decay": 0.1, "method": "top"}),
    ("mo", {}, {"scorer": "decayed", "method": "top", "partial": False}),
    ("sm", {"readings": f"{SYNTHETIC}/smart-grid.csv"}, {}),
    ("sm", {"readings": f"{SYNTHETIC}/smart-grid.csv"}, {"window": "10min", "length": "2min", "parallelism": 2}),
    ("sm", {"readings": f"{SYNTHETIC}/smart-grid.csv"}, {"every": "1min", "history": 3, "partial": False}),
    ("tt", {"tweets": f"{SYNTHETIC}/tweets.jsonl"}, {}),
    ("tt", {}, {"window": "3s", "every": "1s", "k": 3, "partial": False, "normalise": True}),
    ("ca", {"clicks": f"{SYNTHETIC}/click-stream.jsonl"}, {"geo": f"{SYNTHETIC}/geo-table.csv"}),
    ("ca", {}, {"emit": "update"}),
    ("equipment", {}, {}),
    ("equipment", {}, {"window": "2s", "growth": 0.0, "baseline": "first", "allowed_lateness": "0s", "max_pending": 1}),
    ("equipment", {}, {"baseline": "mean"}),
    ("sample", {}, {"share": 0.45, "seed": -9}),
    ("projection", {}, {"column": 4}),
    ("grep", {}, {"text": "http", "invert": True}),
    ("distinct", {}, {"column": 1}),
    ("statistics", {}, {"field": "frac_bytes"}),
]
#: Options of generated streams in which little happens in a few seconds, or nothing is wrong.
LIVELY = {"equipment": {"holding": "0.4s"}, "searches": {"dirt": True}, "packets": {"dirt": True, "records": 700}}


@pytest.mark.parametrize(("code", "shared", "options"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_plain_python_equals_the_dataflow(code, shared, options, tmp_path, sample_data):
    one = application(code)
    options = {k: str(sample_data / v) if k in one.files else v for k, v in options.items()}
    files = {source: sample_data / path for source, path in shared.items()}
    for source, stream in one.inputs.items():
        if source not in files:
            files[source] = tmp_path / stream
            write(generate(stream, messages=1500, seed=3, **LIVELY.get(stream, {})), files[source])
    result = one.builder(**options).run({source: replay(path) for source, path in files.items()})
    plain = plain_results(one, {source: read_lines(path) for source, path in files.items()}, options)
    assert set(plain) == set(one.results)
    for stream, fields in one.results.items():
        columns = [result[stream].column(name).to_pylist() for name in fields]
        found = compare(stream, plain[stream], zip(*columns, strict=True))
        assert found.equal, found
        assert found.found


#: Texts that a cell might contain.
ODD = (
    b"",
    b" ",
    b"nan",
    b"-inf",
    b"1e400",
    b"-1",
    b"0",
    b"+5",
    b"-0.0",
    b"x",
    b'"',
    b"\xc3\xa9",
    b"\xff",
    b"\x00",
    b"null",
)


def changed(rng, line, others):
    """A line with a cell that is odd, lacking, twice there, elsewhere or among blanks, or two lines in one."""
    between = rng.choice([one for one in (b",", b";", b"\t", b" ") if one in line] or [b","])
    cells = line.split(between)
    i, j = rng.randrange(len(cells)), rng.randrange(len(cells))
    how = rng.randrange(6)
    if how == 0:
        cells[i] = rng.choice(ODD)
    elif how == 1:
        del cells[i]
    elif how == 2:
        cells[i:i] = [cells[i]]
    elif how == 3:
        cells[i], cells[j] = cells[j], cells[i]
    elif how == 4:
        cells[i] = b" " + cells[i] + b"  "
    else:
        cells = [*cells[:i], rng.choice(others)]
    return between.join(cells) + rng.choice((b"\n", b"\n", b"\r\n"))


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize("code", sorted({code for code, *_ in CASES} | {"wc", "wordcount"}))
def test_plain_python_equals_the_dataflow_on_corrupted_lines(code, seed, tmp_path):
    rng = random.Random(f"{code} {seed}")
    one = application(code)
    files = {}
    for source, stream in one.inputs.items():
        files[source] = tmp_path / stream
        write(generate(stream, messages=1000, seed=seed, **LIVELY.get(stream, {})), files[source])
        lines = files[source].read_bytes().split(b"\n")[:-1]
        spoiled = [changed(rng, line, lines) if rng.random() < 0.2 else line + b"\n" for line in lines]
        files[source].write_bytes(b"".join(spoiled))
    result = one.builder().run({source: replay(path) for source, path in files.items()})
    plain = plain_results(one, {source: read_lines(path) for source, path in files.items()}, {})
    for stream, fields in one.results.items():
        columns = [result[stream].column(name).to_pylist() for name in fields]
        found = compare(stream, plain[stream], zip(*columns, strict=True))
        assert found.equal, found

"""The programs of StreamBench, against naive ones, and what must hold between their results."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from riot_bench.harness.validation import plain_results

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import application
from riot_ops.streams import generate
from tests.dataflows.dspbench.line_messages import messages, rows
from tests.reference.streambench import programs
from tests.search import depth
from tests.simulated_query import SimulatedQuery

NAMES = ["identity", "sample", "projection", "grep", "wordcount", "distinct", "statistics"]
OPTIONS = {
    "sample": {"share": 0.6, "seed": 5},
    "projection": {"column": 2},
    "grep": {"text": "ab"},
    "distinct": {"column": 1},
    "statistics": {"field": "month_id"},
}
words = st.lists(st.text("abA .,ü\t\r\v\0", max_size=12).filter(lambda line: not line.endswith("\r")), max_size=12)
numbers = st.lists(
    st.lists(st.integers(-9, 9).map(str) | st.sampled_from(["1e15", "0.1", "-.5", "x", "", "1e-9"]), max_size=4).map(
        ",".join
    ),
    max_size=12,
)


def lines_for(name):
    return numbers if name == "statistics" else words


def found(name, result):
    [(stream, fields)] = application(name).results.items()
    read = rows(result[stream], *fields)
    return [tuple(v.decode() if isinstance(v, bytes) else v for v in row) for row in read]


@pytest.mark.parametrize("name", NAMES)
@given(st.data(), st.integers(1, 5), st.booleans())
@settings(max_examples=depth(25))
def test_results_equal_naive_programs(name, data, batch_size, plainly):
    lines, options = data.draw(lines_for(name)), {} if plainly else OPTIONS.get(name, {})
    wanted = list(getattr(programs, name)(lines, **options))
    flow = application(name).builder(**options)
    assert found(name, flow.run(messages(lines), batch_size=batch_size)) == wanted
    plain = plain_results(application(name), {"lines": [line.encode() for line in lines]}, options)
    [theirs] = plain.values()
    assert [tuple(v.decode() if isinstance(v, bytes) else v for v in row) for row in theirs] == [w[1:] for w in wanted]


@pytest.mark.parametrize("name", NAMES)
def test_staged_results_are_equal(name):
    stream = application(name).inputs["lines"]
    choose = random.Random(name)
    source = generate(stream, messages=300, records=130, dirt=True)
    whole = application(name).builder().run(source)
    staged = SimulatedQuery(application(name).builder(), source, choose, max_records=70, partitions=2)
    assert sorted(found(name, staged)) == sorted(found(name, whole)), "words of a line have no order"
    assert found(name, whole)


def run(name, messages=900, records=300, **options):
    one = application(name)
    return found(name, one.builder(**options).run(generate(one.inputs["lines"], messages=messages, records=records)))


def test_whole_cycles_give_multiples():
    once, thrice = (Counter(word for _, word, _ in run("wordcount", messages=n)) for n in (300, 900))
    assert thrice == {word: 3 * n for word, n in once.items()}
    assert [size for _, _, size in run("distinct")] == list(range(1, len(run("distinct", messages=300)) + 1))
    once, thrice = (run("statistics", messages=n)[-1][1:] for n in (300, 900))
    assert thrice[:3] == (900, *once[1:3])
    assert thrice[3] == 3 * once[3]


def test_matching_and_other_lines_are_all_lines():
    assert sorted(run("grep", text="http") + run("grep", text="http", invert=True)) == run("identity")
    assert run("grep", text="") == run("identity") == run("sample", share=1.0)
    assert run("sample", share=0.0) == []
    assert set(run("sample", share=0.2)) < set(run("sample", share=0.3))


def test_grep_matches_one_percent_of_the_lines():
    for seed in (0, 1):
        one = application("grep").builder().run(generate("searches", messages=10_000, seed=seed))
        assert 50 < one["matches"].num_rows < 200


@pytest.mark.parametrize(("name", "options"), [("wordcount", {}), ("statistics", {})])
def test_last_updates_equal_final_results(name, options):
    one, source = application(name), generate(application(name).inputs["lines"], messages=500)
    every = found(name, one.builder().run(source))
    result = one.builder(emit="update").run(source, batch_size=100)
    key = (lambda row: row[1]) if name == "wordcount" else (lambda row: None)
    assert {key(row): row for row in found(name, result)} == {key(row): row for row in every}
    assert len(found(name, result)) < len(every)


@pytest.mark.parametrize("name", NAMES)
def test_no_lines_give_no_results(name):
    assert found(name, application(name).builder().run(messages([]))) == []


def test_invalid_utf8_lines():
    lines = [{"payload": b"a\xff 1"}, {"payload": b"b 1"}]
    for name, left in (("identity", 2), ("grep", 0), ("wordcount", 2), ("projection", 1), ("distinct", 1)):
        result = application(name).builder().run(lines)
        assert len(found_bytes(name, result)) == left
        assert result["errors"]["reason"].to_pylist() == ["invalid_utf8"] * (name not in ("identity", "grep"))


def found_bytes(name, result):
    return rows(result[next(iter(application(name).results))])


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match=r'field must be one of month_id.*did you mean "v4_pkts"'):
        application("statistics").builder(field="v4_pkt")
    with pytest.raises(ConfigError, match="share"):
        application("sample").builder(share=2.0)
    for name in ("distinct", "projection"):
        application(name).builder(column=65_535)
        for column, limit in ((65_536, "<= 65535"), (-1, ">= 0")):
            with pytest.raises(ConfigError, match=f"{name}: column = {column}: Expected `int` {limit}"):
                application(name).builder(column=column)

"""Implementations of StreamBench's programs have equal results."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from riot_bench.harness.digest import digest
from riot_bench.suites.streambench.programs import (
    PROGRAMS,
    choose_programs,
    collect_rows,
    final_results,
    find_implementations,
)

from riot_ops.core.errors import ConfigError
from riot_ops.dataflows import application
from riot_ops.streams import generate, replay, write

SETTINGS = {
    "sample": {"share": 0.4, "seed": 3},
    "projection": {"column": 4},
    "grep": {"text": "http", "invert": True},
    "distinct": {"column": 1},
    "statistics": {"field": "v6_bytes"},
}
FILES = 4


def lines_of(name: str, folder: Path, messages: int = 600) -> Path:
    """Generated lines as text, and beside them as Parquet with their numbers."""
    source = generate(application(name).inputs["lines"], messages=messages, records=250, dirt=True)
    path = folder / "lines.txt"
    write(source, path)
    path.write_text(path.read_text().replace(" ", " a\0b ", 1))  # NUL is a part of a word
    texts = path.read_text().split("\n")[:-1]
    (folder / "numbered").mkdir()
    each = messages // FILES
    for i in range(FILES):
        numbers = range(i * each, (i + 1) * each)
        table = pa.table({"seq": pa.array(numbers, pa.int64()), "value": texts[i * each : (i + 1) * each]})
        pq.write_table(table, folder / "numbered" / f"{i}.parquet")
    return path


def in_process(name: str, path: Path, **options: Any) -> str:
    result = application(name).builder(**options).run(replay(path))
    return digest(final_results(name, result[PROGRAMS[name].stream]))


def test_digest_covers_rows_their_number_and_types() -> None:
    rows = [("a", 1), ("b", 2), ("b", 2)]
    others = [[("a", 1), ("b", 2)], [("a", 1), ("a", 1), ("b", 2)], [("a", 1.0), ("b", 2), ("b", 2)], []]
    assert digest(rows) == digest(rows[::-1]) == digest(iter(rows))
    assert len({digest(rows), *map(digest, others)}) == 5
    assert digest([]) == "0-" + 64 * "0"
    assert digest([(None, "1")]) != digest([("", "1")]) != digest([("1", "")])


def test_final_results_by_hand() -> None:
    assert final_results("identity", [{"seq": 1, "value": "x"}]) == final_results(
        "identity", [{"seq": 1, "payload": b"x\r\n"}]
    )
    figures = {"min": 1.0, "max": 2.0, "sum": 3.0, "mean": 1.5}
    rows = [{"count": 2, **figures}, {"count": 1, "min": 1.0, "max": 1.0, "sum": 1.0, "mean": 1.0}]
    assert final_results("statistics", rows) == [(2, 1.0, 2.0, 3.0, 1.5)]
    nothing = {"count": 0, "min": None, "max": None, "sum": None, "mean": None}
    assert final_results("statistics", [nothing]) == final_results("statistics", []) == []
    assert final_results("statistics", [nothing, rows[0], nothing]) == [(2, 1.0, 2.0, 3.0, 1.5)]
    assert final_results("distinct", [{"value": "a"}, {"value": "b"}, {"value": "a"}]) == [("a",), ("b",), ("a",), (3,)]


def test_distinct_count_returns_its_size() -> None:
    """Without counts, the size is the number of values."""
    right, wrong = ([{"value": "b", "count": n}, {"value": "a", "count": 1}] for n in (2, 1))
    alone = pa.table({"value": ["a", "b"], "count": [1, 2], "seq": [0, 1]})
    found = [
        digest(final_results("distinct", rows)) for rows in (right, alone, [{"value": "a"}, {"value": "b"}], wrong)
    ]
    assert found[0] == found[1] == found[2] != found[3]
    assert final_results("distinct", []) == []


def test_chosen_programs_are_run() -> None:
    usual = ("identity", "wordcount")
    assert choose_programs((), usual) == ["identity", "wordcount"]
    assert choose_programs(tuple(PROGRAMS), usual) == list(PROGRAMS), "all of them are more than six"
    assert choose_programs(["grep", "wordcount"], usual) == ["grep", "wordcount"]
    assert choose_programs(["grep", "identity", "grep"], usual) == ["grep", "identity"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_plain_python_is_equal_in_any_batches(name: str, tmp_path: Path) -> None:
    path, options = lines_of(name, tmp_path), SETTINGS.get(name, {})
    wanted = in_process(name, path, **options)
    assert not wanted.startswith("0-")
    flow = application(name).builder(**options)
    cut = flow.run(replay(path), batch_size=77)[PROGRAMS[name].stream]
    assert digest(final_results(name, cut)) == wanted


@pytest.mark.spark
def test_spark_expressions_have_equal_results(spark: Any, tmp_path: Path) -> None:
    """Of those that have most to say, in one job; of all in the long run, as streams."""
    wanted, frames = {}, []
    for name in ("sample", "wordcount", "statistics"):
        path, options = (tmp_path / name), SETTINGS.get(name, {})
        path.mkdir()
        wanted[name] = in_process(name, lines_of(name, path, 300), **options)
        implementation = find_implementations(name)["expressions"]
        assert not implementation.python
        lines = spark.read.schema("seq bigint, value string").parquet(str(path / "numbered"))
        made = implementation.build(lines, **options)
        frames.append(made.selectExpr(f"'{name}' AS program", "to_json(struct(*)) AS row"))
    none = find_implementations("statistics")["expressions"].build(lines.selectExpr("seq", "'no number' AS value"))
    frames.append(none.selectExpr("'none' AS program", "to_json(struct(*)) AS row"))
    rows: dict[str, list[Any]] = {name: [] for name in (*wanted, "none")}
    for name, row in functools.reduce(lambda a, b: a.union(b), frames).collect():
        rows[name].append(json.loads(row))
    assert final_results("statistics", rows["none"]) == []
    assert len(rows.pop("none")) == 1, "Spark has a result of nothing"
    assert {name: digest(final_results(name, of_one)) for name, of_one in rows.items()} == wanted


def streamed(spark: Any, name: str, implementation: str, path: Path) -> str:
    given = find_implementations(name)[implementation]
    lines = spark.readStream.schema("seq bigint, value string").option("maxFilesPerTrigger", 1)
    frame = given.build(lines.parquet(str(path / "numbered")), **SETTINGS.get(name, {}))
    rows = collect_rows(frame, given, path / f"checkpoint-{implementation}")
    return digest(final_results(name, rows))


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_all_implementations_have_equal_results(name: str, spark: Any, tmp_path: Path) -> None:
    path, options = lines_of(name, tmp_path), SETTINGS.get(name, {})
    found = {"in process": in_process(name, path, **options)}
    updates = {"emit": "update"} if name in ("wordcount", "statistics") else {}
    flow = application(name).builder(**options, **updates)
    query = flow.start(spark, source={"lines": replay(path)}, partitions=2, max_records=150)
    query.wait()
    found["packed"] = digest(final_results(name, query[PROGRAMS[name].stream]))
    for implementation in find_implementations(name):
        found[implementation] = streamed(spark, name, implementation, tmp_path)
    assert set(found.values()) == {found["in process"]}, found
    assert {"expressions", "udf"} <= set(found)
    assert ("state" in found) == (name in ("wordcount", "distinct", "statistics"))


def test_sums_of_parts_of_whole_numbers_are_refused() -> None:
    for implementation in find_implementations("statistics").values():
        with pytest.raises(ConfigError, match=r"field must be an integer field, one of month_id, .*got 'frac_pkts'"):
            implementation.build(None, field="frac_pkts")

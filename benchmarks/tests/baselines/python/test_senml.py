"""Parsing with orjson."""

from __future__ import annotations

from benchmarks.tests.city_files import SENSORS
from riot_ops import tasks as t
from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.streams.riotbench.city import CitySource


def test_orjson_baseline_equals_parse_senml() -> None:
    from riot_bench.baselines.python.senml import parse

    lines = CitySource(SENSORS, 500).lines(0, 500)
    errors = RejectedRecords("parse")
    ours = t.ParseSenML(schema="city").apply(lines, errors)
    assert errors.count == 0
    assert parse(lines.column("payload").to_pylist()).equals(ours)

"""Generated input files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from riot_bench.harness.data import LineFiles

from benchmarks.tests.city_files import FILES, MESSAGES, SENSORS
from riot_ops.streams.riotbench.city import CitySource


def test_written_files_equal_the_stream(city: Path) -> None:
    source = LineFiles(city, MESSAGES // FILES)
    read = pa.Table.from_batches(source.read({"first": 0, "end": FILES}))
    assert read["seq"].to_pylist() == list(range(MESSAGES))
    wanted = CitySource(SENSORS, MESSAGES).lines(0, MESSAGES)
    assert [line.rstrip() for line in read["payload"].to_pylist()] == wanted.column("payload").to_pylist()

"""Lost and duplicate results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from riot_bench.harness.numbered_lines import write_numbered
from riot_bench.suites.streambench.programs import PROGRAMS
from riot_bench.suites.streambench.result_check import ExpectedResults, NumberedResults, read_results
from riot_bench.suites.streambench.runs import program_flow

from riot_ops.dataflows import application


def test_lost_and_duplicated_numbers_take_five_bytes_each() -> None:
    lines, each = 2_000_000, 100_000
    numbers = NumberedResults(lines)
    for first in range(0, lines, each):
        numbers.want(np.arange(first, first + each), (b"%d" % n for n in range(first, first + each)))
    assert numbers.wanted.nbytes == 4 * lines

    def parts() -> Any:
        for first in range(0, lines, each):
            kept = [n for n in range(first, first + each) if n % 1_000]  # 2,000 are lost
            yield kept, [b"%d" % n for n in kept]
        yield [7, 7, lines, -1, 2_000], [b"7", b"7", b"x", b"y", b"wrong"]

    assert numbers.difference(parts()) == (2_000, 5)


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_of_a_folder_are_compared_with_a_run_in_process(name: str, tmp_path: Path) -> None:
    data = write_numbered(application(name).inputs["lines"], tmp_path / "lines", 2, 400)
    wanted = ExpectedResults(name, data)
    program_flow(name).run(data.source(), out=tmp_path / "out")
    whole = list(read_results(name, tmp_path / "out"))
    assert wanted.difference(whole) == (0, 0)
    lost, doubled = wanted.difference([])
    assert (lost > 0, doubled) == (True, 0)
    if PROGRAMS[name].key is None:
        assert wanted.difference([*whole, whole[0].slice(0, 3)]) == (0, 3)
    if name == "distinct":
        at = whole[0].schema.get_field_index("count")
        stays = [one.set_column(at, one.schema.field(at), pa.array([1] * one.num_rows)) for one in whole]
        assert wanted.difference(stays) == (1, 1), "a missing size counts as lost"

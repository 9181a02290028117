"""The sample results as the files of a run."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from riot_ops.cli import result_plots
from tests.cli.result_plots.sample_results import RESULTS


@pytest.fixture
def results(tmp_path):
    """Write the results of an application; returns what its plot reads."""
    pytest.importorskip("matplotlib")

    def write(name):
        streams, parsed = RESULTS[name]
        for stream, columns in streams.items():
            table = pa.table(columns)
            (tmp_path / stream).mkdir()
            # two files whose names are not in the order of their rows
            table = table.append_column("seq", pa.array(range(table.num_rows), pa.int64()))
            pq.write_table(table.slice(1), tmp_path / stream / "a.parquet")
            pq.write_table(table.slice(0, 1), tmp_path / stream / "b.parquet")
        return result_plots.Results(tmp_path, lambda source: pa.table(parsed[source]))

    return write

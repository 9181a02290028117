"""The suite kernels."""

from __future__ import annotations

import pyarrow as pa
import pytest
from riot_bench.harness.timing import kernel_times
from riot_bench.suites.kernels import CODES, COMMON_KERNELS, task_under_test


@pytest.mark.parametrize("code", CODES)
def test_kernel_suite_measures_the_task_of_each_code(code: str) -> None:
    assert task_under_test(code, 4).code == code


def test_kernel_time_excludes_what_every_keyed_task_does() -> None:
    session = task_under_test("KAL", 4).session()
    batch = pa.record_batch({"seq": [0], "sensor_id": ["sensor-000001"], "value": [1.0]})
    session.push_batch(batch)
    with kernel_times() as times:
        session.push_batch(batch)
    assert set(times.spent) - set(COMMON_KERNELS) == {"kalman_filter.kalman", "kalman_filter.count_missing"}

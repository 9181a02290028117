"""The instance of each record, by distribution."""

import numpy as np
import pyarrow as pa
import pytest

from riot_ops.core.rejected_records import RejectedRecords
from riot_ops.graph.lowering import INSTANCE_FIELD, Route
from riot_ops.graph.nodes import Distribution
from riot_ops.runtime.routing import add_instances

BATCH = pa.RecordBatch.from_pydict({"seq": [0, 1, 2, 3, 4, 5], "key": ["a", "b", "a", "c", "b", "a"]})


def routed(spread, sources=1):
    rejects = RejectedRecords("route")
    out = add_instances(Route("in->out", spread, sources), BATCH, rejects)
    return out, [row for errors in rejects.take() for row in errors.to_pylist()]


def test_broadcast_copies_each_record_to_all_instances():
    out, _ = routed(Distribution("broadcast", parallelism=2))
    assert out["seq"].to_pylist() == [n for n in range(6) for _ in range(2)]
    assert out[INSTANCE_FIELD].to_pylist() == out["ordinal"].to_pylist() == [0, 1] * 6


@pytest.mark.parametrize(("sources", "wanted"), [(1, [0, 1, 2, 0, 1, 2]), (2, [0, 0, 1, 1, 2, 2])])
def test_shuffle_deals_the_messages_of_each_source_in_turn(sources, wanted):
    out, _ = routed(Distribution("shuffle", parallelism=3), sources)
    assert out[INSTANCE_FIELD].to_pylist() == wanted


def test_records_of_equal_fields_share_an_instance():
    out, _ = routed(Distribution("hash", fields=("key",), parallelism=2))
    found = dict(zip(out["key"].to_pylist(), out[INSTANCE_FIELD].to_pylist(), strict=True))
    assert [found[key] for key in BATCH["key"].to_pylist()] == out[INSTANCE_FIELD].to_pylist()
    assert {*found.values()} <= {0, 1}


def test_records_without_an_instance_are_rejected():
    out, errors = routed(Distribution("custom", parallelism=2, router=lambda batch: np.array([0, 1, 2, -1, 1, 0])))
    assert (out["seq"].to_pylist(), out[INSTANCE_FIELD].to_pylist()) == ([0, 1, 4, 5], [0, 1, 1, 0])
    assert [row["reason"] for row in errors] == ["bad_instance"] * 2


@pytest.mark.parametrize("given", [np.zeros(5, np.int64), np.zeros(6)], ids=["too few", "floats"])
def test_wrong_result_of_a_router_rejects_all_records(given):
    out, errors = routed(Distribution("custom", parallelism=2, router=lambda batch: given))
    assert out.num_rows == 0
    assert [row["reason"] for row in errors] == ["bad_instance"] * 6
    assert "must return 6 integers" in errors[0]["message"]

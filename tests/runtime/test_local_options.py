"""Options of a run in process that cannot be."""

import pytest

import riot_ops as ro
from riot_ops.core.errors import ConfigError


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"queue_size": 0}, {"order": "seq"}])
def test_what_is_not_allowed(wrong):
    flow = ro.Dataflow("small")
    flow.sink("out", flow.source("in", schema={"value": "double"}))
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        flow.run([{"value": 1.0}], **wrong)
    usual = {"batch_size": 1, "queue_size": 1, "order": "event_time"}
    assert flow.run([{"value": 1.0}], **usual)["in"]["value"].to_pylist() == [1.0]

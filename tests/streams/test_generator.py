"""The formats of the generated streams hold the same messages."""

import json

import pytest

from riot_ops import streams
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import OBSERVATIONS, SCHEMAS
from tests.streams.records import table


@pytest.mark.parametrize("name", SCHEMAS)
def test_observations_equal_the_observed_columns_of_the_wide_format(name):
    schema = SCHEMAS[name]
    wide, rows = (table(streams.generate(name, 5, messages=40, format=f)) for f in ("wide", "observations"))
    assert rows.schema == OBSERVATIONS
    assert rows["obs_type"].to_pylist() == list(schema.observed) * 40
    assert rows["seq"].to_pylist() == [seq for seq in range(40) for _ in schema.observed]
    numeric = [i for i, field in enumerate(schema.observed) if field in schema.numeric]
    values = rows["value"].to_pylist()
    for number, row in enumerate(wide.to_pylist()):
        own = values[number * len(schema.observed) :]
        assert [own[i] for i in numeric] == [row[schema.observed[i]] for i in numeric]


@pytest.mark.parametrize("name", SCHEMAS)
def test_senml_messages_are_json_with_a_field_per_column(name):
    for line in table(streams.generate(name, 5, messages=20))["payload"].to_pylist():
        message = json.loads(line.partition(b",")[2])
        assert len(message["e"]) == len(SCHEMAS[name].columns) - 1
        assert "bt" in message


def test_unknown_format_is_refused_with_a_hint():
    with pytest.raises(ConfigError, match=r"format must be one of .*got 'widee'.*wide"):
        streams.fit(1, messages=1, format="widee")

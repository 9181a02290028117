"""Any request gets an answer that describes its fault, and the manager continues."""

from __future__ import annotations

import copy
import json
import random
import re

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from typer.testing import CliRunner

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.cli import main as cli
from riot_ops.cli.reuse_requests import REQUESTS, decode_request, parse_request
from riot_ops.cli.reuse_server import ReuseServer
from riot_ops.cli.reuse_socket import answer_line
from riot_ops.core.errors import ConfigError
from tests.search import depth

SCHEMA = {"device": "string", "value": "double"}
#: Beginnings of answers that reveal a defect of the program.
FAULT = re.compile(r"^[A-Z]\w*(Error|Exception): ")


def flow():
    made = ro.Dataflow("mean")
    stream = made.source("readings", schema=SCHEMA).to(t.MovingAverage(by=("device",), window=5), id="average")
    return made.sink("out", stream)


def request(readings):
    """A valid request."""
    one = {"dataflow": flow().to_dict(), "sources": {"readings": {"file": str(readings)}}, "sinks": {"out": "discard"}}
    return {"do": "submit", "dataflows": [{**one, "name": "a", "owner": "ada", "fold": False}]}


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    file = tmp_path_factory.mktemp("data") / "readings.csv"
    file.write_text("device,value\na,1.5\n")
    return file


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = ReuseServer(tmp_path_factory.mktemp("shared"))
    yield made
    made.close()


def answer(server, line):
    """The answer as sent over the socket; submitted dataflows are removed again."""
    found = json.loads(json.dumps(answer_line(line, server.handle), default=str).encode())
    assert found.keys() in ({"result"}, {"error"})
    if "error" in found:
        assert isinstance(found["error"], str) and not FAULT.match(found["error"]), found["error"]
    for name in server.manager.names:
        server.manager.remove(name)
    server.stopping.clear()
    assert answer_line(b'{"do": "list"}', server.handle) == {"result": []}
    return found


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([*REQUESTS, "\ud800"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["do", "name", "form", "dataflows", "dataflow", "sources", "x"]), inner, max_size=4
        )
    ),
    max_leaves=8,
)


@pytest.mark.long
@given(st.binary(max_size=60) | JSON.map(lambda data: json.dumps(data).encode()))
@settings(max_examples=depth(300), deadline=None)
def test_any_line_is_answered(server, line):
    answer(server, line + b"\n")


@pytest.mark.parametrize("line", [b"[" * 100_000, b'{"do":' * 50_000, b'{"do": "\xff"}', b'{"do": NaN}', b""])
def test_malformed_json_is_refused(server, line):
    assert "must be a line of JSON" in answer(server, line)["error"]


def test_lone_surrogate_is_refused(server):
    assert "must be a line of JSON" in answer(server, b'{"do": "remove", "name": "\\uD800"}')["error"]
    assert decode_request(b'{"do": "\\ud83d\\ude00"}') == {"do": "\U0001f600"}


WRONG = (None, 7, -1, 1.5, True, "x", "", [], ["x"], [[]], {}, {"x": 1}, [{"x": []}], "a\x00b", 10**30)


def places(data, path=()):
    """The path to each value in nested data."""
    yield path
    for key, value in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(value, (*path, key))


def changed(data, path, wrong):
    """The data with another value at a path; without the value if it is ``places``."""
    made = copy.deepcopy(data)
    holder = made
    for key in path[:-1]:
        holder = holder[key]
    if wrong is places:
        del holder[path[-1]]
    else:
        holder[path[-1]] = wrong
    return made


def test_any_value_in_a_submission_is_answered(server, readings):
    whole = request(readings)
    assert "result" in answer(server, json.dumps(whole).encode())
    choose = random.Random(1)
    refused = 0
    for path in [p for p in places(whole) if p]:
        for wrong in (places, *choose.sample(WRONG, 5)):
            refused += "error" in answer(server, json.dumps(changed(whole, path, wrong)).encode())
    assert refused > 150


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "'do' must be one of submit, .*, got None"),
        ({"do": "remov"}, 'did you mean "remove"'),
        ({"do": ["list"]}, r"got \['list'\]"),
        ({"do": "remove", "name": 7}, r"remove: name = 7 \(int\): Expected `str`, got `int`"),
        ({"do": "stop", "now": 1}, "stop: .*unknown field `now`; known are none"),
        ({"do": "show", "form": "svgg"}, "show: form = 'svgg' .*must be 'mermaid', 'svg'; did you mean \"svg\""),
        ({"do": "submit", "dataflows": 5}, r"submit: dataflows = 5 \(int\): Expected `array`"),
        ({"do": "submit", "dataflows": [{"sources": {}}]}, r"dataflows\[0\] = an object with sources: .*`dataflow`"),
        ({"do": "submit", "dataflows": [{"dataflow": {}, "fould": 1}]}, "unknown field `fould`; known are .*fold"),
    ],
)
def test_malformed_request_reports_why(asked, message):
    with pytest.raises(ConfigError, match=message):
        parse_request(asked)


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: 5, "must hold an object, got 5"),
        (lambda d: d.update(nodes=5), r"nodes = 5 \(int\): Expected `array`"),
        (lambda d: d["nodes"][2].pop("id"), r"nodes\[2\] = an object with kind: .*`id`"),
        (lambda d: d["nodes"][0].update(schema=[{"name": "a"}]), r"nodes\[0\]\.schema\[0\] = .*`type`"),
        (lambda d: d["nodes"][0].pop("kind"), r"nodes\[0\] = .*`kind`"),
        (lambda d: d["edges"].pop(), "average: its output is not read"),
        (lambda d: d["edges"][0].update({"from": "x"}), "no node 'x'"),
        (lambda d: {"dataflow": d, "sinks": [1]}, "sinks must be an object, by name, got .*list"),
        (lambda d: {"dataflow": d, "sources": {"readings": 4}}, "source readings must be a text or an object"),
        (lambda d: {"dataflow": 3}, "not a dataflow descriptor: it must be an object, got 3"),
    ],
)
@pytest.mark.parametrize("out", [(), ("--out", "somewhere")])
def test_malformed_file_is_reported_before_a_request(tmp_path, change, message, out):
    data = flow().to_dict()
    other = change(data)  # changed in place, or replaced
    data = other if isinstance(other, int) or (isinstance(other, dict) and "dataflow" in other) else data
    file = tmp_path / "flow.json"
    file.write_text(json.dumps(data))
    result = CliRunner().invoke(cli.app, ["reuse", "submit", str(file), *out, "--dir", str(tmp_path / "nobody")])
    assert isinstance(result.exception, ConfigError), result.exception
    assert str(result.exception).startswith(f"{file}: ") and re.search(message, str(result.exception))


def test_deeply_nested_file_is_refused(tmp_path):
    file = tmp_path / "flow.json"
    file.write_text("[" * 200_000)
    result = CliRunner().invoke(cli.app, ["reuse", "submit", str(file), "--dir", str(tmp_path)])
    assert isinstance(result.exception, ConfigError) and f"{file} is not JSON" in str(result.exception)

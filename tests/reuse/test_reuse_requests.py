"""What may stand in requests, files and names: each is done, or refused with its reason, and everybody else is served."""

from __future__ import annotations

import copy
import io
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.command import cli_reuse
from riot_ops.command.reuse_server import ReuseServer
from riot_ops.core.errors import ConfigError, RiotError
from tests.reuse.test_reuse_command import Serving, call, written
from tests.search import depth


def flow():
    made = ro.Dataflow("mean")
    return made.sink("out", made.source("city").to(t.SenMLParse(schema="city"), id="parse"))


READINGS = {"stream": "city", "rate": 5}
WHOLE = {
    "do": "submit",
    "dataflows": [
        {
            "dataflow": flow().to_dict(),
            "sources": {"city": READINGS},
            "sinks": {"out": {"discard": True}},
            "name": "mean",
            "owner": "ada",
            "on_slow": "detach",
            "on_failure": "stop",
            "fold": False,
            "flag_warm": False,
        }
    ],
}
JUNK = (None, True, 5, -1, 1.5, 10**30, float("nan"), "", "x", "\x00", [], [[]], ["a", "b"], {}, {"a": 1})


def places(data, above=()):
    """The way to each thing in some JSON."""
    for key, one in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield (*above, key)
        yield from places(one, (*above, key))


@pytest.fixture(scope="module")
def server():
    with tempfile.TemporaryDirectory() as folder:
        made = ReuseServer(Path(folder) / "shared")
        yield made
        made.close()


@given(st.data())
@settings(max_examples=depth(600))
def test_a_request_with_a_fault_is_refused_with_its_reason(server, data):
    request = copy.deepcopy(WHOLE)
    for _ in range(data.draw(st.integers(1, 2))):
        *way, last = data.draw(st.sampled_from([*places(request)]))
        there = request
        for key in way:
            there = there[key]
        if data.draw(st.booleans()):
            there[last] = data.draw(st.sampled_from(JUNK))
        else:
            del there[last]
    try:
        server.answer(request)
    except RiotError as error:
        assert str(error)
    for name in server.manager.names:
        server.answer({"do": "remove", "name": name})
    server.answer(WHOLE)
    assert [one["name"] for one in server.answer({"do": "list"})] == ["mean"]
    server.answer({"do": "remove", "name": "mean"})


@pytest.mark.parametrize("do", ["remove", "pause", "resume"])
@pytest.mark.parametrize("name", JUNK)
def test_no_name_is_none(server, do, name):
    with pytest.raises(RiotError, match=r"no dataflow|Expected `str`"):
        server.answer({"do": do, "name": name})


@pytest.mark.parametrize("do", JUNK)
def test_what_is_to_be_done_is_known(server, do):
    with pytest.raises(ConfigError, match="'do' must be one of submit, explain"):
        server.answer({"do": do})


def test_the_place_of_a_fault_is_told(server):
    for change, told in (
        ({"sinks": 5}, r"Expected `object`, got `int` - at `\$\[0\]\.sinks`"),
        ({"name": []}, r"Expected `str \| null`, got `array` - at `\$\[0\]\.name`"),
        ({"fold": "x"}, r"Expected `bool`, got `str` - at `\$\[0\]\.fold`"),
        ({"own": "x"}, "unknown field `own`"),
    ):
        with pytest.raises(ConfigError, match=told):
            server.answer({"do": "submit", "dataflows": [{**WHOLE["dataflows"][0], **change}]})
    with pytest.raises(ConfigError, match="on_slow must be 'detach' or"):
        server.answer({"do": "submit", "dataflows": [{**WHOLE["dataflows"][0], "on_slow": "x"}]})


@pytest.mark.parametrize("nodes", [5, None, [5], [{"kind": "sink"}], [{"kind": "sink", "id": 5}]])
def test_a_file_that_is_no_dataflow(tmp_path, nodes):
    file = tmp_path / "a.json"
    file.write_text(json.dumps({**flow().to_dict(), "nodes": nodes}))
    with Serving(tmp_path / "shared"):
        for more in ((), ("--out", str(tmp_path / "out"))):
            assert call(tmp_path / "shared", "submit", str(file), *more, code=2)


@pytest.mark.parametrize(
    ("name", "shown"), [("[red]a[/]", "[red]a[/]"), ("[/]", "[/]"), ("a\x1b[2Jb\nc", r"a\x1b[2Jb\nc"), ("ü 😀", "ü 😀")]
)
@pytest.mark.parametrize("terminal", [True, False])
def test_names_are_shown_as_they_are_and_move_no_cursor(tmp_path, monkeypatch, name, shown, terminal):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=200, color_system=None)
    monkeypatch.setattr(cli_reuse, "console", console)
    with Serving(tmp_path / "shared"):
        more = ("--source", f"city={json.dumps(READINGS)}", "--name", name, "--owner", name)
        call(tmp_path / "shared", "submit", written(tmp_path / "a.json", flow()), *more)
        printed = call(tmp_path / "shared", "list")
    [line] = [line for line in (out.getvalue() if terminal else printed).splitlines() if "runs" in line]
    assert line.count(shown) == 2 and "\x1b" not in line

"""``riot-ops run --list``: every application, as a table and as JSON."""

from __future__ import annotations

import json

from riot_ops.dataflows import APPLICATIONS
from tests.cli.commands import call


def test_list_names_every_application():
    entries = {entry["code"]: entry for entry in json.loads(call("run", "--list", "--json"))}
    assert entries["wc"] == {
        "code": "wc",
        "name": "word_count",
        "suite": "dspbench",
        "streams": ["counts"],
        "sources": ["lines"],
    }
    assert entries["stats"]["suite"] == "riotbench"
    shown = call("run", "--list")
    assert all(one.code in shown and one.name in shown for one in APPLICATIONS.values())

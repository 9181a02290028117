"""``riot-ops run micro``: one task between a source and a sink."""

from __future__ import annotations

from tests.cli.commands import call


def test_micro_runs_a_single_task(tmp_path):
    text = call("run", "micro", "kal", "--runner", "local", "--messages", "500", "--out", str(tmp_path))
    assert "micro-kal: 500 messages" in text
    text = call("run", "micro", "mqs", "--runner", "local", "--messages", "50", "--out", str(tmp_path / "mqs"))
    assert "micro-mqs: 50 messages" in text

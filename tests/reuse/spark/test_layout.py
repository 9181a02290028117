"""Layouts of a query: which steps are idle, and which files are loaded."""

from __future__ import annotations

import pytest

from riot_ops.core.errors import ConnectorError
from riot_ops.graph.plan import plan_steps
from riot_ops.reuse.spark.control import Control
from riot_ops.reuse.spark.layout import Layout, LayoutStore


def test_joined_step_is_idle_in_earlier_versions():
    plan = plan_steps("x", [], [], set(), "exact")
    layout = Layout(plan, {}, {"a": 3})
    assert layout.idle_steps(2, Control(resting=("b",))) == {"a", "b"} and layout.idle_steps(3, Control()) == set()


def test_layouts_are_loaded_only_by_their_own_query(tmp_path):
    plan = plan_steps("x", [], [], set(), "exact")
    layouts = LayoutStore.create(tmp_path, Layout(plan, {}, {}))
    layouts.add("one", later := Layout(plan, {}, {"a": 1}))
    assert layouts.get(Control(layout="one")).since == later.since and layouts.get(Control()).since == {}
    again = LayoutStore.create(tmp_path, later)
    assert again.get(Control(layout="one")).since == {"a": 1}, "the layout that it was started with"
    again.add("two", later)
    for other, name, message in (
        (layouts, "two", "not written by this query"),
        (layouts, "three", "cannot be read"),
    ):
        with pytest.raises(ConnectorError, match=message):
            other.get(Control(layout=name))
    (tmp_path / "four").write_bytes((tmp_path / "two").read_bytes())
    with pytest.raises(ConnectorError, match="damaged"):
        again.get(Control(layout="four"))

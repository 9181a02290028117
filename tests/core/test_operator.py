"""The contract of operators: what authors may define, which families do, and what the page for authors lists."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from riot_ops.core.operator import FilterOperator, KeyedOperator, Operator, StatelessOperator, emits_per_batch
from riot_ops.core.special_operators import PeriodicOperator, PooledOperator, ReadableState
from riot_ops.dataflows.dspbench.operators import BoundedCount
from riot_ops.task import registered_tasks

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "custom_task.md"
#: Names that are not for authors to define: what a task is called, copies of it, its parameters.
GIVEN = {"name", "replace", "stateful", "by", "ttl"}


def hooks(cls, *bases):
    """The public names that a class has and its bases lack."""
    known = {name for base in bases for name in vars(base)}
    return {name for name in vars(cls) if not name.startswith("_")} - known - GIVEN


def families(name):
    """The packages of the tasks that define a name."""
    found = defaultdict(set)
    for kind in registered_tasks():
        for cls in kind.__mro__:
            if cls.__module__.startswith(("riot_ops.core.", "riot_ops.task")) and cls.__module__.count(".") < 3:
                continue
            if name in vars(cls):
                found[cls.__module__.split(".")[2]].add(cls.__name__)
    return {*found}


@pytest.mark.parametrize("name", sorted(hooks(KeyedOperator, Operator)))
def test_hook_of_keyed_operators_is_implemented_by_two_families(name):
    assert len(families(name)) >= 2, families(name)


def test_page_for_authors_lists_the_whole_contract():
    parts = re.split(r"^(?:## .+|A `FilterTask`.+|A task with `emit.+)$", PAGE.read_text(encoding="utf-8"), flags=re.M)
    listed = [set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.+?) \|", part, re.M)))) for part in parts]
    assert listed[1] == hooks(Operator)
    assert listed[2] == hooks(StatelessOperator)
    assert listed[3] == hooks(FilterOperator, StatelessOperator)
    assert listed[4] == hooks(KeyedOperator, Operator)
    special = set(re.findall(r"^\| `\w+` \| `(\w+)` \|", parts[5], re.M))
    assert special == {
        *hooks(PeriodicOperator, KeyedOperator),
        *hooks(PooledOperator, KeyedOperator),
        *hooks(ReadableState),
    }


def test_task_that_emits_updates_gets_whole_batches():
    assert emits_per_batch(BoundedCount(field="word", capacity=2, emit="update"))
    assert not emits_per_batch(BoundedCount(field="word", capacity=2))
    assert not emits_per_batch(object())

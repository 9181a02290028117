"""Diagrams of dataflows."""

from __future__ import annotations

import re

from riot_ops import dataflows

KEYED, PLAIN = "#fde68a", "#dcfce7"


def test_stateful_tasks_have_another_colour():
    """A prediction keeps state only if new models reach it while it runs."""
    drawn = dataflows.threat(from_packets=True).svg()
    names = re.findall(r'font-weight="bold">([^<]+)<', drawn)
    colours = dict(zip(names, re.findall(r'fill="(#\w+)" stroke', drawn), strict=True))
    assert {name: colours[name] for name in ("parse", "flows", "judge")} == {
        "parse": PLAIN,
        "flows": KEYED,
        "judge": PLAIN,
    }

"""Diagrams of dataflows."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import riot_ops as ro
from riot_ops import dataflows
from riot_ops.graph.diagram import mermaid, svg

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


HOSTILE = 'a"]\n  click n0 javascript:alert(1)\n  <img src=x>&#96;`\x1b[31m\x00'


def hostile_flow():
    flow = ro.Dataflow("any")
    stream = flow.source("in", schema={HOSTILE: "string", "value": "double"})
    return flow.sink("out", stream.partition_by(HOSTILE).to(ro.tasks.KalmanFilter(by=HOSTILE), id="smooth"))


def test_names_are_no_markup_in_mermaid():
    drawn = mermaid(hostile_flow(), notes={"smooth": HOSTILE}, caption=HOSTILE)
    lines = drawn.splitlines()
    assert lines[0] == "flowchart LR" and len(lines) == 1 + 3 + 2 + 2, "no name begins a line"
    for line in lines[1:]:
        label = line.partition('"')[2].rpartition('"')[0]
        assert not {'"', "`", "\x1b", "\x00"} & set(label) and "<img" not in label
        assert re.fullmatch(r"(?:[^#]|#(?:quot|35|96);)*", label), "a number sign begins an entity of ours only"


def test_names_are_no_markup_in_svg():
    drawn = svg(hostile_flow(), notes={"smooth": HOSTILE}, caption=HOSTILE)
    texts = [element.text for element in ET.fromstring(drawn).iter("{http://www.w3.org/2000/svg}text")]
    plain = HOSTILE.replace("\n", "\ufffd").replace("\x1b", "\ufffd").replace("\x00", "\ufffd")
    assert texts.count(plain) == 2 and f"hash({plain})" in texts, "as the note, as the caption and on the edge"

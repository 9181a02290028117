"""Flowcharts in Mermaid's syntax, which forges draw, as SVG for the site, which loads no program for it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import escape, unescape

__all__ = ["flowchart_svg"]

NODE = re.compile(
    r"(?P<id>[\w.-]+?)\s*(?P<shape>\(\[|\[\[|\[\(|\(\(|\[|\(|\{)\s*\"?(?P<text>.*?)\"?\s*(?:\]\)|\]\]|\)\]|\)\)|\]|\)|\})(?=\s|$|&)"
)
ARROW = re.compile(r"\s*(?P<line>-->|---|-\.->|==>)(?:\|\"?(?P<label>.*?)\"?\|)?\s*")
KINDS = {"([": "source", "[[": "sink", "[(": "store", "((": "source", "[": "task", "(": "task", "{": "choice"}
IGNORED = re.compile(r"(?:subgraph|end|style|classDef|class|linkStyle|direction|%%)\b|^%%")
LETTER, LINE, PADDING, GAP, ROW = 7.2, 16, 10, 26, 18


@dataclass
class Box:
    """A node, with its place once that is known."""

    lines: list[str]
    kind: str
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    height: float = 0.0


@dataclass
class Chart:
    """A flowchart as it is written."""

    down: bool
    boxes: dict[str, Box] = field(default_factory=dict)
    edges: list[tuple[str, str, str, bool]] = field(default_factory=list)


def flowchart_svg(text: str) -> str:
    r"""Return a flowchart as an SVG picture, which takes its colours from the page.

    >>> flowchart_svg('flowchart LR\n  a(["in"]) --> b["mean: AVG"]')[:4]
    '<svg'
    """
    chart = _read(text)
    _place(chart)
    return _drawn(chart)


def _read(text: str) -> Chart:
    lines = [line.strip().rstrip(";") for line in text.strip().splitlines()]
    head = re.fullmatch(r"(?:flowchart|graph)\s+(LR|TD|TB)", lines[0]) if lines else None
    if head is None:
        raise ValueError(f"only flowcharts LR, TD and TB can be drawn, not {lines[0] if lines else 'nothing'!r}")
    chart = Chart(head[1] != "LR")
    for line in lines[1:]:
        if not line or IGNORED.match(line):
            continue
        at, before, label, dashed = 0, [], "", False
        while True:
            names, at = _nodes(chart, line, at)
            chart.edges += [(a, b, label, dashed) for a in before for b in names]
            arrow = ARROW.match(line, at)
            if arrow is None or not arrow[0].strip():
                if line[at:].strip():
                    raise ValueError(f"cannot draw {line!r}")
                break
            label, dashed, before, at = _plain(arrow["label"] or ""), arrow["line"] == "-.->", names, arrow.end()
    return chart


def _nodes(chart: Chart, line: str, at: int) -> tuple[list[str], int]:
    """Read nodes joined by ``&``; return their names and the place after them."""
    names = []
    while True:
        found = NODE.match(line, at)
        if found:
            lines = [_plain(part) for part in re.split(r"<br\s*/?>", found["text"])]
            chart.boxes[found["id"]] = Box(lines, KINDS[found["shape"]])
        else:
            found = re.compile(r"(?P<id>\w+)").match(line, at)
            if found is None:
                raise ValueError(f"cannot draw {line!r}")
            chart.boxes.setdefault(found["id"], Box([found["id"]], "task"))
        names.append(found["id"])
        at = found.end()
        more = re.compile(r"\s*&\s*").match(line, at)
        if more is None:
            return names, at
        at = more.end()


def _plain(text: str) -> str:
    """Return a label's text; Mermaid writes characters as ``#quot;`` and ``#35;``."""
    return unescape(re.sub(r"#(\w+);", lambda m: f"&#{m[1]};" if m[1].isdigit() else f"&{m[1]};", text)).strip('"')


def _place(chart: Chart) -> None:
    """Give each node its layer, as far from the start as its longest path, and a place in it beside its inputs."""
    inputs: dict[str, list[str]] = {name: [] for name in chart.boxes}
    for a, b, _, _ in chart.edges:
        inputs[b].append(a)
    done: set[str] = set()

    def depth(name: str, above: frozenset[str]) -> int:
        if name not in done and name not in above:
            box = chart.boxes[name]
            box.layer = max((depth(a, above | {name}) + 1 for a in inputs[name] if a not in above | {name}), default=0)
            done.add(name)
        return chart.boxes[name].layer

    layers: dict[int, list[str]] = {}
    for name, box in chart.boxes.items():
        layers.setdefault(depth(name, frozenset()), []).append(name)
        box.width = max(LETTER * max(len(line) for line in box.lines) + 2 * PADDING, 64)
        box.height = LINE * len(box.lines) + 2 * PADDING - 2
    across = "x" if chart.down else "y"
    sizes = {n: (b.width, b.height) if chart.down else (b.height, b.width) for n, b in chart.boxes.items()}
    tallest = max(sum(sizes[n][0] + ROW for n in names) for names in layers.values())
    labels: dict[int, int] = {}  # the longest label of the edges from a layer to the next
    for a, b, label, _ in chart.edges:
        if chart.boxes[b].layer == chart.boxes[a].layer + 1:
            labels[chart.boxes[a].layer] = max(labels.get(chart.boxes[a].layer, 0), len(label))
    along = 4.0
    for layer, names in sorted(layers.items()):
        order = {n: i for i, n in enumerate(names)}

        def middle(name: str, order: dict[str, int] = order) -> tuple[float, int]:
            before = [chart.boxes[a] for a in inputs[name] if chart.boxes[a].layer < chart.boxes[name].layer]
            places = [b.x + b.width / 2 if chart.down else b.y + b.height / 2 for b in before]
            return (sum(places) / len(places) if places else 0.0, order[name])

        names.sort(key=middle)
        at = (tallest - sum(sizes[n][0] + ROW for n in names)) / 2 + ROW / 2
        for name in names:
            box = chart.boxes[name]
            setattr(box, across, at)
            setattr(box, "y" if chart.down else "x", along)
            at += sizes[name][0] + ROW
        along += max(sizes[n][1] for n in names) + GAP + (14 if chart.down else 6.2 * labels.get(layer, 0))


def _drawn(chart: Chart) -> str:
    boxes = chart.boxes.values()
    width, height = max(b.x + b.width for b in boxes) + 6, max(b.y + b.height for b in boxes) + 12
    title = "Flowchart: " + ", ".join(
        f"{' '.join(chart.boxes[a].lines)} to {' '.join(chart.boxes[b].lines)}" for a, b, _, _ in chart.edges[:12]
    )
    parts = [
        f'<svg class="flowchart" role="img" aria-label="{escape(title)}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}">'
    ]
    for a, b, label, dashed in chart.edges:
        parts += _edge(chart, chart.boxes[a], chart.boxes[b], label, dashed)
    for box in boxes:
        radius = {"source": box.height / 2, "choice": 14}.get(box.kind, 5)
        parts.append(
            f'<rect class="{box.kind}" x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" '
            f'height="{box.height:.1f}" rx="{radius:.0f}"/>'
        )
        if box.kind == "sink":
            sides = (box.x + 5, box.x + box.width - 5)
            parts += [f'<path class="edge" d="M{x:.1f} {box.y:.1f}v{box.height:.1f}"/>' for x in sides]
        parts += _text(box.lines, box.x + box.width / 2, box.y + box.height / 2)
    return "".join([*parts, "</svg>"])


def _text(lines: Iterable[str], x: float, y: float) -> list[str]:
    lines = list(lines)
    top = y - LINE * (len(lines) - 1) / 2 + 4.5
    return [
        f'<text x="{x:.1f}" y="{top + LINE * i:.1f}" text-anchor="middle">{escape(line)}</text>'
        for i, line in enumerate(lines)
    ]


def _edge(chart: Chart, a: Box, b: Box, label: str, dashed: bool) -> list[str]:
    if chart.down:
        x1, y1, x2, y2 = a.x + a.width / 2, a.y + a.height, b.x + b.width / 2, b.y
        c1, c2, tip = f"{x1:.1f} {(y1 + y2) / 2:.1f}", f"{x2:.1f} {(y1 + y2) / 2:.1f}", "-4 -7h8z"
    else:
        x1, y1, x2, y2 = a.x + a.width, a.y + a.height / 2, b.x, b.y + b.height / 2
        c1, c2, tip = f"{(x1 + x2) / 2:.1f} {y1:.1f}", f"{(x1 + x2) / 2:.1f} {y2:.1f}", "-7 -4v8z"
    dash = " dashed" if dashed else ""
    parts = [
        f'<path class="edge{dash}" d="M{x1:.1f} {y1:.1f}C{c1} {c2} {x2:.1f} {y2:.1f}"/>',
        f'<path class="tip" d="M{x2:.1f} {y2:.1f}l{tip}"/>',
    ]
    if label:
        x, y = (x1 + x2) / 2, (y1 + y2) / 2 - (0 if chart.down else 5)
        parts.append(f'<text class="label" x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(label)}</text>')
    return parts

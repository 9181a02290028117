"""Diagrams of dataflows: Mermaid text and SVG."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from riot_ops.core.operator import KeyedOperator
from riot_ops.graph.graph import Graph
from riot_ops.graph.nodes import Edge, Node

__all__ = ["mermaid", "svg"]

BOX_WIDTH, BOX_HEIGHT, GAP_Y, LINE_HEIGHT = 150, 44, 26, 15
#: Minimum gap between columns, and the width that each character of an edge label adds.
GAP_X, LETTER = 50, 6
COLOURS = {"source": "#dbeafe", "sink": "#e5e7eb", "keyed": "#fde68a", "task": "#dcfce7"}


def _label(node: Node) -> str:
    return node.id if node.task is None else f"{node.id}: {node.task.code or node.task.name()}"


def _edge_label(edge: Edge) -> str:
    spread = edge.distribution
    if spread.kind == "forward":
        return ""
    text = spread.kind + (f"({', '.join(spread.fields)})" if spread.fields else "")
    return text + (f" x{spread.parallelism}" if spread.parallelism else "")


def mermaid(flow: Graph, notes: Mapping[str, str] | None = None, caption: str = "") -> str:
    """Draw the graph as a Mermaid flowchart, with ``notes`` as second lines in the boxes and a caption below.

    >>> from riot_ops import dataflows
    >>> print(mermaid(dataflows.stats()).splitlines()[0])
    flowchart LR
    """
    names = {node: f"n{i}" for i, node in enumerate(flow.nodes)}
    shapes = {"source": '(["{}"])', "sink": '[["{}"]]', "task": '["{}"]'}
    lines = ["flowchart LR"]
    for node in flow.nodes.values():
        text = "<br/>".join(_mermaid_text(line) for line in (_label(node), (notes or {}).get(node.id)) if line)
        lines.append(f"  {names[node.id]}{shapes[node.kind].format(text)}")
    for edge in flow.edges:
        label = _mermaid_text(_edge_label(edge))
        arrow = f'-->|"{label}"|' if label else "-->"
        lines.append(f"  {names[edge.source]} {arrow} {names[edge.target]}")
    if caption:
        lines += [f'  caption["{_mermaid_text(caption)}"]', "  style caption fill:none,stroke:none"]
    return "\n".join(lines) + "\n"


def _mermaid_text(text: str) -> str:
    """Return a text from outside as part of a label in double quotes, whose mark-up is neither HTML nor Mermaid's."""
    text = _printable(text).replace("#", "#35;")
    return escape(text, quote=False).replace('"', "#quot;").replace("`", "#96;")


def _printable(text: str) -> str:
    """Replace control characters, which end a line in Mermaid and are not allowed in XML."""
    return "".join(c if c.isprintable() else "\ufffd" for c in text)


def _xml_text(text: str) -> str:
    return escape(_printable(text))


def svg(
    flow: Graph,
    notes: Mapping[str, str | tuple[str, ...]] | None = None,
    caption: str = "",
    gap_x: int = GAP_X,
) -> str:
    """Draw the graph as an SVG picture with layers from left to right; parameters as for :func:`mermaid`.

    A note may be a tuple of lines; each is a ``text`` of the class ``note``, so that a page can change it. ``gap_x`` is
    the room between boxes for what a page writes there.
    """
    noted = {name: (note,) if isinstance(note, str) else note for name, note in (notes or {}).items()}
    box_height = BOX_HEIGHT + LINE_HEIGHT * max((len(note) - 1 for note in noted.values()), default=0)
    layer: dict[str, int] = {}
    for node in flow.topological_order():
        layer[node.id] = max((layer[e.source] + 1 for e in flow.inputs(node.id) if e.source in layer), default=0)
    columns: dict[int, list[str]] = {}
    for name, depth in layer.items():
        columns.setdefault(depth, []).append(name)
    tallest = max((len(c) for c in columns.values()), default=1)
    gap = gap_x + LETTER * max((len(_edge_label(e)) for e in flow.edges), default=0)
    place: dict[str, tuple[float, float]] = {}
    for depth, names in sorted(columns.items()):
        # beside their inputs, so that few edges cross
        names.sort(
            key=lambda n: (
                sum(place[e.source][1] for e in flow.inputs(n) if e.source in place) / max(1, len(flow.inputs(n)))
            )
        )
        top = (tallest - len(names)) * (box_height + GAP_Y) / 2
        for row, name in enumerate(names):
            place[name] = (20 + depth * (BOX_WIDTH + gap), 20 + top + row * (box_height + GAP_Y))
    width = 40 + max(0, len(columns) * (BOX_WIDTH + gap) - gap)
    height = 40 + tallest * (box_height + GAP_Y) - GAP_Y
    below = height + 4
    if caption:
        width, height = max(width, 40 + LETTER * len(caption)), height + GAP_Y
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" '
        f'viewBox="0 0 {width} {height:.0f}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',  # the text is dark, the page may be, too
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 8 4 0 8z" fill="#555"/></marker></defs>',
    ]
    for number, edge in enumerate(flow.edges):
        parts += _svg_edge(edge, place, box_height / 2, number)
    for node in flow.nodes.values():
        x, y = place[node.id]
        keyed = isinstance(node.task, KeyedOperator) and node.task.stateless_equivalent() is None
        kind = "keyed" if keyed else node.kind
        parts.append(
            f'<g data-node="{_xml_text(node.id)}">'
            f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{box_height}" rx="6" '
            f'fill="{COLOURS[kind]}" stroke="#555"/>'
        )
        code = "" if node.task is None else node.task.code or node.task.name()
        lines = [line for line in (node.id, *noted.get(node.id, (code,))) if line]
        for i, line in enumerate(lines):
            dy = box_height / 2 + 4 + (i - (len(lines) - 1) / 2) * LINE_HEIGHT
            weight = ' font-weight="bold"' if i == 0 else ' class="note" fill="#555"'
            parts.append(
                f'<text x="{x + BOX_WIDTH / 2}" y="{y + dy}" text-anchor="middle"{weight}>{_xml_text(line)}</text>'
            )
        parts.append("</g>")
    if caption:
        parts.append(f'<text x="20" y="{below}" fill="#555">{_xml_text(caption)}</text>')
    return "\n".join([*parts, "</svg>"])


def _svg_edge(edge: Edge, place: dict[str, tuple[float, float]], below: float, number: int) -> list[str]:
    (x1, y1), (x2, y2) = place[edge.source], place[edge.target]
    x1, y1, y2 = x1 + BOX_WIDTH, y1 + below, y2 + below
    middle = (x1 + x2) / 2
    parts = [
        f'<path data-edge="{number}" d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}" fill="none" stroke="#555" '
        'marker-end="url(#arrow)"/>'
    ]
    label = _edge_label(edge)
    if label:
        parts.append(
            f'<text x="{middle}" y="{(y1 + y2) / 2 - 5}" text-anchor="middle" font-size="10" '
            f'fill="#555">{_xml_text(label)}</text>'
        )
    return parts

"""Displays of objects: tables of text for terminals, and of HTML for notebooks, with what is from outside escaped."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from html import escape
from typing import Any

from riot_ops.core.errors import escape_control, excerpt

__all__ = [
    "WIDTH",
    "Markup",
    "cell_html",
    "cell_text",
    "fields_text",
    "html_display",
    "html_table",
    "operator_html",
    "operator_text",
    "text_table",
    "wrapped",
]

#: Columns of a terminal that a text fits into.
WIDTH = 80
#: Characters of a value, and items of a list or fields of a struct, that are shown.
MAX_VALUE, MAX_ITEMS = 60, 5
#: Characters of a parameter of a task.
MAX_PARAMETER = 300

#: Text and lines have the colour of the notebook's theme, some paler, and nothing has a background.
STYLE = (
    "<style>"
    ".riot-ops{overflow:auto;max-height:36em}"
    ".riot-ops table{border-collapse:collapse;margin:.2em 0 .6em}"
    ".riot-ops caption,.riot-ops p{caption-side:top;text-align:left;margin:.2em 0;padding:.2em 0;color:inherit}"
    ".riot-ops table tr th,.riot-ops table tr td{text-align:left;vertical-align:top;padding:.15em .7em .15em 0;"
    "border:0;border-bottom:1px solid rgba(128,128,128,.35);background:none;color:inherit;max-width:30em;"
    "overflow-wrap:break-word;white-space:normal}"
    ".riot-ops table tr th{white-space:nowrap}"
    ".riot-ops table tr .n{text-align:right}"
    ".riot-ops .m{opacity:.65}"
    ".riot-ops .e{border-left:3px solid #d33;padding-left:.4em}"
    "</style>"
)


class Markup(str):
    """HTML that is shown as it is; any other text is escaped."""

    __slots__ = ()


def cell_text(value: Any, length: int = MAX_VALUE) -> str:
    r"""Show a value of a record on one line.

    >>> [cell_text(value) for value in (None, 21.0, 1 / 3, "a\nb", b"\xff", [1.5, 2], {"x": 1})]
    ['null', '21.0', '0.333333', 'a\\nb', "b'\\xff'", '[1.5, 2]', '{x: 1}']
    """
    if value is None:
        return "null"
    if isinstance(value, float):
        return repr(value) if len(repr(value)) <= 8 else f"{value:.6g}"
    if isinstance(value, datetime):
        text = value.isoformat(" ", "auto" if value.microsecond % 1000 or not value.microsecond else "milliseconds")
        return text.removesuffix("+00:00") if value.tzinfo is not None else text
    if isinstance(value, (date, time, timedelta)):
        return str(value)
    if isinstance(value, str):
        return excerpt(escape_control(excerpt(value, length)), length)
    if isinstance(value, bytes):
        return excerpt(_bytes_text(value[:length]) + ("…" if len(value) > length else ""), length)
    if isinstance(value, Mapping):
        inside = [f"{cell_text(k, length)}: {cell_text(v, length)}" for k, v in list(value.items())[:MAX_ITEMS]]
        return excerpt("{" + ", ".join([*inside, *["…"] * (len(value) > MAX_ITEMS)]) + "}", length)
    if isinstance(value, (list, tuple)):
        inside = [cell_text(one, length) for one in value[:MAX_ITEMS]]
        return excerpt("[" + ", ".join([*inside, *["…"] * (len(value) > MAX_ITEMS)]) + "]", length)
    return excerpt(escape_control(str(value)), length)


def _bytes_text(value: bytes) -> str:
    try:
        return escape_control(value.decode())
    except UnicodeDecodeError:
        return repr(value)


def fields_text(record: Mapping[str, Any]) -> str:
    """Show the fields of a record on one line.

    >>> fields_text({"bed": "a", "moisture": None})
    'bed=a  moisture=null'
    """
    return "  ".join(f"{escape_control(name)}={cell_text(value, 40)}" for name, value in record.items())


def operator_text(operator: Any, length: int = MAX_VALUE) -> str:
    """Show a task by its name and the parameters that are not the defaults.

    >>> from riot_ops import tasks
    >>> operator_text(tasks.KalmanFilter(by="room", process_noise=0.5)), operator_text(tasks.KalmanFilter())
    ("KalmanFilter(by='room', process_noise=0.5)", 'KalmanFilter()')
    """
    parts = []
    for field in dataclasses.fields(operator):
        value = getattr(operator, field.name)
        if field.repr and not _equal(value, _default(field)):
            parts.append(f"{field.name}={_parameter_text(value)}")
    return excerpt(escape_control(f"{type(operator).__name__}({', '.join(parts)})"), length)


def _parameter_text(value: Any) -> str:
    if isinstance(value, timedelta):
        return str(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return operator_text(value)
    if isinstance(value, tuple) and len(value) == 1 and isinstance(value[0], str):
        return repr(value[0])
    if type(value) is tuple:
        return "(" + ", ".join(map(_parameter_text, value)) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name!r}: {_parameter_text(one)}" for name, one in value.items()) + "}"
    return str(getattr(value, "__qualname__", None) or repr(value)) if callable(value) else repr(value)


def _equal(value: Any, default: Any) -> bool:
    try:
        return bool(type(value) is type(default) and value == default)
    except Exception:  # a user's __eq__ may raise, or return no truth
        return False


def operator_html(operator: Any) -> str:
    """Return a task's name, the first line of its description and its parameters, as a notebook shows them."""
    rows = []
    for field in dataclasses.fields(operator):
        if not field.repr:
            continue
        value, default = getattr(operator, field.name), _default(field)
        shown = excerpt(_parameter_text(value), MAX_PARAMETER)
        if default is dataclasses.MISSING or _equal(value, default):
            rows.append([field.name, shown, ""])
        else:
            rows.append([field.name, shown, f"default {excerpt(_parameter_text(default), MAX_PARAMETER)}"])
    described = (type(operator).__doc__ or "").strip().partition("\n")[0]
    return html_display(
        type(operator).__name__, described, html_table(rows, ["parameter", "value", ""]) if rows else ""
    )


def _default(field: Any) -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default


def text_table(
    rows: Sequence[Sequence[str]], headers: Sequence[str] = (), numbers: Iterable[int] = (), width: int = WIDTH
) -> list[str]:
    """Return the lines of a table; the widest columns of text are cut so that it fits.

    Parameters
    ----------
    numbers : iterable of int
        Columns that are aligned to the right.

    Examples
    --------
    >>> print(*text_table([["dry", "3"], ["smooth", "12"]], ["step", "read"], numbers=[1]), sep=chr(10))
    step    read
    dry        3
    smooth    12
    """
    cells = [[escape_control(cell) for cell in row] for row in ([headers] if headers else []) + list(rows)]
    if not cells:
        return []
    right = {*numbers}
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    while sum(widths) + 2 * (len(widths) - 1) > width:
        longest = max((i for i in range(len(widths)) if i not in right), key=lambda i: widths[i], default=-1)
        if longest < 0 or widths[longest] <= 8:
            break
        widths[longest] -= 1
    lines = []
    for row in cells:
        shown = [excerpt(cell, size) for cell, size in zip(row, widths, strict=True)]
        placed = [
            one.rjust(size) if i in right else one.ljust(size)
            for i, (one, size) in enumerate(zip(shown, widths, strict=True))
        ]
        lines.append("  ".join(placed).rstrip())
    return lines


def wrapped(text: str, indent: str, first: str = "", width: int = WIDTH, max_lines: int = 4) -> list[str]:
    """Break a text into lines after ``first``, which stands in front of the first line.

    >>> wrapped("a b c d", "    ", "s1  ", width=8)
    ['s1  a b', '    c d']
    """
    return textwrap.wrap(
        escape_control(text),
        width,
        initial_indent=first,
        subsequent_indent=indent,
        max_lines=max_lines,
        placeholder=" …",
        break_on_hyphens=False,
    ) or [first.rstrip()]


def cell_html(value: str) -> str:
    """Return the HTML of a cell: markup as it is, any other text escaped and without control characters.

    >>> cell_html("<b>&"), cell_html(Markup("<b>x</b>"))
    ('&lt;b&gt;&amp;', '<b>x</b>')
    """
    return value if isinstance(value, Markup) else escape(escape_control(value))


def html_table(
    rows: Sequence[Sequence[str]], headers: Sequence[str] = (), numbers: Iterable[int] = (), caption: str = ""
) -> Markup:
    """Return a table as HTML, for :func:`html_display`; parameters as for :func:`text_table`.

    >>> html_table([["<a>", "1"]], numbers=[1])
    '<table><tr><td>&lt;a&gt;</td><td class="n">1</td></tr></table>'
    """
    right = {*numbers}
    parts = ["<table>"]
    if caption:
        parts.append(f"<caption>{cell_html(caption)}</caption>")
    for kind, row in [*([("th", headers)] if headers else []), *(("td", row) for row in rows)]:
        marks = (' class="n"' if i in right else "" for i in range(len(row)))
        cells = "".join(f"<{kind}{mark}>{cell_html(cell)}</{kind}>" for mark, cell in zip(marks, row, strict=True))
        parts.append(f"<tr>{cells}</tr>")
    return Markup("".join([*parts, "</table>"]))


def html_display(*parts: str) -> str:
    """Return the HTML of a notebook's output: text as paragraphs, and markup as it is."""
    inside = (part if isinstance(part, Markup) else f"<p>{cell_html(part)}</p>" for part in parts if part)
    return f'<div class="riot-ops">{STYLE}{"".join(inside)}</div>'

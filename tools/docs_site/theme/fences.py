"""Fenced blocks that the generator does not know: formulas as MathML, and pictures as SVG."""

from typing import Any

from latex2mathml.converter import convert


def math(source: str, language: str, css_class: str, options: Any, md: Any, **more: Any) -> str:
    """Return a formula in LaTeX as MathML, which browsers draw by themselves."""
    return "".join(
        f'<div class="math" tabindex="0">{convert(line, display="block")}</div>' for line in source.split("\n\n")
    )


def picture(source: str, language: str, css_class: str, options: Any, md: Any, **more: Any) -> str:
    """Return SVG unchanged."""
    return f'<figure class="picture" tabindex="0">{source}</figure>'

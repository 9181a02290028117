"""The live page: one HTML document, which is served during a run, or kept with the last state of one."""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from importlib.resources import files
from typing import Any

import msgspec

__all__ = ["page", "report", "security_policy"]

KEPT = '<script type="application/json" id="kept">null</script>'
PROOF = '<meta name="proof" content="">'
#: Of a document that is a file: what a server says in a header.
META = '<meta http-equiv="Content-Security-Policy" content="{}">'


def page(proof: str | None = None) -> str:
    """Return the page with its styles and scripts in it; with ``proof`` it offers actions, and sends that with them."""
    text = _template()
    return text if proof is None else text.replace(PROOF, PROOF.replace('""', f'"{proof}"'), 1)


@functools.cache
def _template() -> str:
    folder = files("riot_ops.monitoring")
    text = folder.joinpath("page.html").read_text(encoding="utf-8")
    for mark, name in (("/*UPLOT-CSS*/", "uPlot.min.css"), ("/*UPLOT-JS*/", "uPlot.iife.min.js")):
        text = text.replace(mark, folder.joinpath("uplot", name).read_text(encoding="utf-8"))
    return text


@functools.cache
def security_policy() -> str:
    """Return the content security policy: only the scripts and styles of the page itself, and nothing from elsewhere.

    >>> security_policy().startswith("default-src 'none'; script-src 'sha256-")
    True
    """
    scripts = _hashes(r"<script>(.*?)</script>")
    styles = _hashes(r"<style>(.*?)</style>")
    return (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def report(state: dict[str, Any]) -> str:
    """Return the page as a document of its own that shows a state, without a server."""
    data = msgspec.json.encode(state).decode()
    for mark in "<>&\u2028\u2029":  # nothing in the data can end the element that holds it
        data = data.replace(mark, f"\\u{ord(mark):04x}")
    policy = META.format(security_policy().replace("; frame-ancestors 'none'", ""))  # only a header may have that
    text = page().replace('<meta charset="utf-8">', f'<meta charset="utf-8">\n{policy}', 1)
    return text.replace(KEPT, KEPT.replace("null", data), 1)


def _hashes(pattern: str) -> str:
    found = re.findall(pattern, page(), re.DOTALL)
    return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in found)

"""Style of the HTML pages of results."""

from __future__ import annotations

__all__ = ["PAGE_NAME", "STYLE"]

PAGE_NAME = "index.html"
STYLE = """
body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #0f172a; background: #fff; margin: 2rem auto;
  max-width: 68rem; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 .4rem; }
p, dl { max-width: 46rem; } .dim { color: #64748b; } dt { font-weight: 600; } dd { margin: 0 0 .5rem 0; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .85rem; }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid #e2e8f0; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; font-weight: 600; position: sticky; left: 0; background: #fff; }
th { vertical-align: bottom; white-space: normal; } .paper { text-align: left; color: #9a3412; background: #fff7ed; }
img { max-width: 100%; height: auto; border: 1px solid #e2e8f0; border-radius: 4px; }
"""

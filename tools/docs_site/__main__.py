"""Build the documentation site, or show it.

    python tools/docs_site build    site/VERSION, site/versions.json and site/index.html
    python tools/docs_site sources  only the Markdown in build/docs/pages
    python tools/docs_site serve    shows the pages, and again after each change

``--no-code`` leaves out running the code blocks of the pages. Problems are printed with file and line, and fail the
build.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import serve
import site_build
from generator import WORK
from pages import Problem


def main() -> int:
    """Run a command; return the status for the shell."""
    parser = argparse.ArgumentParser(prog="docs_site", description=__doc__.partition("\n")[0])
    parser.add_argument("command", choices=["build", "sources", "serve"])
    parser.add_argument("--no-code", action="store_true", help="do not run the code blocks")
    parser.add_argument("--no-pictures", action="store_true", help="of sources: leave the applications' pictures out")
    parser.add_argument("--work", type=Path, default=WORK, help="of sources: where they are written, build/docs")
    parser.add_argument("--port", type=int, default=8000, help="of serve, default 8000")
    options = parser.parse_args()
    try:
        if options.command == "serve":
            serve.serve(options.port)
        elif options.command == "sources":
            site_build.write_sources(site_build.collect(), options.work, pictures=not options.no_pictures)
        else:
            site_build.build(run_code=not options.no_code)
    except Problem as problem:
        print(f"docs: {problem}", file=sys.stderr)
        return 1
    return 0


sys.exit(main())

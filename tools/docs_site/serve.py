"""The site on this machine, made again after each change of a file."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import generator
import site_build
from pages import DOCS, ROOT

__all__ = ["serve"]

WATCHED = (DOCS, ROOT / "src", ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")


def _changes() -> dict[str, int]:
    """Return the time of the last change of each watched file."""
    files = [path for top in WATCHED for path in (top.rglob("*") if top.is_dir() else [top])]
    return {str(path): path.stat().st_mtime_ns for path in files if path.suffix in (".md", ".py", ".svg", ".png")}


def serve(port: int) -> None:
    """Show the pages until Ctrl-C; the generator reloads them in the browser when they change."""
    site_build.write_sources(site_build.collect())
    again = [sys.executable, str(Path(__file__).parent), "sources"]  # a process of its own sees changes of the code
    command = [str(generator.environment() / "zensical"), "serve", "-a", f"localhost:{port}"]
    server = subprocess.Popen(
        [*command, "-f", str(generator.WORK / "zensical.toml")], cwd=generator.WORK, env=generator.surroundings()
    )
    seen = _changes()
    try:
        while server.poll() is None:
            time.sleep(0.5)
            now = _changes()
            if now != seen:
                seen = now
                subprocess.run(again, check=False)
    except KeyboardInterrupt:
        pass
    finally:
        server.terminate()
        server.wait()

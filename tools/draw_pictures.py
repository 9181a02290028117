"""Draw the pictures of the pages into docs/pictures, as SVG that is readable at 400 pixels, in light and dark.

tools/draw_pictures.py [FOLDER]    default: docs/pictures
"""

from __future__ import annotations

import contextlib
import doctest
import io
import sys
import tempfile
from collections.abc import Callable, Sequence
from html import escape
from pathlib import Path
from typing import Any

import riot_ops as ro

ROOT = Path(__file__).resolve().parent.parent
#: Every picture is this wide, so that its text has its own size at 400 pixels.
WIDTH = 400
TEXT, SMALL = 14, 12.5
# a picture brings its ground along: it is readable on any page, whatever scheme that page has chosen
STYLE = """
.ground{fill:#fff;stroke:#d5d9e0}.box{fill:#eef2fb;stroke:#4a63b0}.store{fill:#fff6e0;stroke:#9a6b00}
.bad{fill:#fdecec;stroke:#b3261e}.good{fill:#e7f5ec;stroke:#1b7a43}.line{fill:none;stroke:#4b5563;stroke-width:1.5}
.axis{fill:none;stroke:#9aa3b2}.curve{fill:none;stroke:#2c56c9;stroke-width:2.5}.mean{stroke:#1b7a43;stroke-width:2.5}
.cut{fill:none;stroke:#b3261e;stroke-width:1.5;stroke-dasharray:5 4}.dot{fill:#4b5563}.wrong{fill:#b3261e}
text{fill:#1f2937;font-family:system-ui,-apple-system,Segoe UI,Roboto,sans-serif}.code{font-family:ui-monospace,Menlo,
Consolas,monospace}.strong{font-weight:600}.alarm{fill:#a31b14}.calm{fill:#156338}.blue{fill:#2148ad}
@media (prefers-color-scheme:dark){.ground{fill:#161b22;stroke:#30363d}.box{fill:#1d2a4a;stroke:#86a3f5}
.store{fill:#3a2f10;stroke:#e0b24a}.bad{fill:#43191a;stroke:#f28b82}.good{fill:#12351f;stroke:#67c98c}
.line{stroke:#a8b3c4}.axis{stroke:#5b6675}.curve{stroke:#8fb0ff}.mean{stroke:#67c98c}.cut{stroke:#f28b82}
.dot{fill:#a8b3c4}.wrong{fill:#f28b82}text{fill:#e6edf3}.alarm{fill:#ff9c94}.calm{fill:#7fd9a2}.blue{fill:#a5bfff}}
""".replace("\n", "")


class Picture:
    """Shapes one over the other, in units of a pixel at a width of 400."""

    def __init__(self, title: str, height: float) -> None:
        self.title, self.height = title, height
        self.parts: list[str] = []

    def text(self, x: float, y: float, words: str, kind: str = "", size: float = TEXT, anchor: str = "start") -> None:
        """Write words whose baseline begins, has its middle, or ends at a point."""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size:g}" text-anchor="{anchor}" class="{kind}">'
            f"{escape(words)}</text>"
        )

    def box(
        self, x: float, y: float, width: float, height: float, *lines: str, kind: str = "box", code: bool = False
    ) -> None:
        """Draw a box with lines of text in its middle; the first is strong if there are several."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" class="{kind}"/>')
        top = y + height / 2 - (len(lines) - 1) * 8.5 + 4.8
        for i, line in enumerate(lines):
            style = "code" if code else "strong" if i == 0 and len(lines) > 1 else ""
            size = SMALL if code or i else TEXT
            self.text(x + width / 2, top + 17 * i, line, style, size, "middle")

    def line(self, *points: tuple[float, float], kind: str = "line", arrow: bool = False) -> None:
        """Draw a line through points, with an arrow at its end where wanted."""
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        end = ' marker-end="url(#end)"' if arrow else ""
        self.parts.append(f'<polyline points="{places}" class="{kind}"{end}/>')

    def arrow(self, *points: tuple[float, float]) -> None:
        """Draw a line through points that ends in an arrow."""
        self.line(*points, arrow=True)

    def dot(self, x: float, y: float, kind: str = "dot", radius: float = 4) -> None:
        """Draw a point."""
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{kind}"/>')

    def svg(self) -> str:
        """Return the file's text."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height:g}" width="{WIDTH}" '
            f'height="{self.height:g}" role="img" aria-label="{escape(self.title)}">\n'
            f"<title>{escape(self.title)}</title>\n"
            f"<style>{STYLE}</style>\n"
            '<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L8 4L0 8z" class="dot"/></marker></defs>\n'
            f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{self.height - 1:g}" rx="10" class="ground"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )


def example_readings() -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]:
    """Return readings of one device in ten minutes, their smoothed values, and the means of the minutes."""
    noise = (3, -5, 7, 1, -4, 6, -2, 5, -7, 2, -1, 4, -6, 0, 5, -3, 6, -5, 2, -2)
    rows: list[dict[str, Any]] = []
    for i in range(40):
        value: float | None = 20 + 0.06 * i + (1.6 if i > 24 else 0) + noise[i % 20] / 9
        value = -99.0 if i in (9, 30) else None if i in (16, 17, 18) else value
        rows.append({"device": "hall", "event_time": 15_000_000 * i, "temperature": value})
    flow = ro.Dataflow("climate")
    fields = {"device": "string", "event_time": "timestamp[us, tz=UTC]", "temperature": "double"}
    valid = flow.source("readings", fields).filter("temperature > -50", id="valid").key_by("device")
    smooth = valid.apply(ro.tasks.KalmanFilter(value="temperature"), id="smooth")
    minutes = valid.window("2min").agg(mean=("temperature", "mean"), id="minutes")
    result = flow.sink("out", smooth, minutes).run(rows)
    return rows, result["smooth"].to_pylist(), result["minutes"].to_pylist()


def overview() -> Picture:
    """Readings with faults, the steps, and the results."""
    rows, smooth, minutes = example_readings()
    picture = Picture(
        "Readings with faults go in; filtered, averaged and smoothed values come out, bad records apart", 470
    )

    def x(seconds: float) -> float:
        return 40 + seconds / 600 * 340

    def seconds(row: dict[str, Any]) -> float:
        time = row["event_time"]
        return float(time / 1e6 if isinstance(time, int) else time.timestamp())

    def chart(top: float, low: float, high: float) -> Callable[[float], float]:
        picture.line((40, top), (40, top + 96), (384, top + 96), kind="axis")
        for value in (20, 24):
            at = top + 92 - (value - low) / (high - low) * 84
            picture.text(34, at + 4, f"{value}°", "", SMALL, "end")
        return lambda value: top + 92 - (value - low) / (high - low) * 84

    picture.text(16, 26, "in: readings of a sensor", "strong")
    y = chart(36, 17, 25)
    for row in rows:
        value = row["temperature"]
        if value == -99:
            picture.dot(x(seconds(row)), 126, "wrong")
        elif value is not None:
            picture.dot(x(seconds(row)), y(float(value)), radius=3)
    picture.text(130, 127, "−99 and gaps: faults", "alarm", SMALL)
    picture.box(16, 160, 108, 54, "read, filter", "types, range")
    picture.box(152, 160, 108, 54, "window", "mean of 2 min")
    picture.box(148, 226, 112, 54, "Kalman filter", "smooth")
    picture.box(288, 160, 96, 120, "files", "or a broker,", "a table, a", "function", kind="good")
    picture.box(16, 240, 108, 40, "errors", "bad lines", kind="bad")
    picture.arrow((70, 140), (70, 158))
    picture.arrow((124, 187), (150, 187))
    picture.arrow((136, 187), (136, 253), (146, 253))
    picture.arrow((260, 187), (286, 187))
    picture.arrow((260, 253), (286, 253))
    picture.arrow((70, 214), (70, 238))
    picture.arrow((336, 280), (336, 304))
    picture.text(16, 314, "out: the same on Spark", "strong")
    y = chart(330, 19, 25)
    picture.line(*((x(seconds(row)), y(float(row["temperature"]))) for row in smooth), kind="curve")
    for row in minutes:
        end = seconds(row)
        at = y(float(row["mean"]))
        picture.line((x(end - 120), at), (x(end), at), kind="mean")
    picture.text(60, 350, "smoothed", "blue", SMALL)
    picture.text(130, 350, "means", "calm", SMALL)
    picture.text(40, 448, "12:00", "", SMALL, "middle")
    picture.text(384, 448, "12:10", "", SMALL, "end")
    return picture


def page_names(page: str) -> dict[str, Any]:
    """Return the names that the examples of a page define, those about matplotlib left out."""
    names: dict[str, Any] = {}
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for example in doctest.DocTestParser().get_examples(text):
            if "matplotlib" in example.source:
                break
            exec(compile(example.source, page, "single"), names)
        names["lines"] = Path("soil.csv").read_text(encoding="utf-8").splitlines()[1:]
    return names


def first_dataflow() -> Picture:
    """The readings and results of the page of the first dataflow."""
    names = page_names("start/first_dataflow.md")
    readings = [float(line.rpartition(",")[2]) for line in names["lines"]]
    smooth = {row["seq"]: row["moisture"] for row in names["result"]["smooth"].to_pylist()}
    picture = Picture("Readings as dots, with two faults at the bottom, and the smoothed line through them", 236)

    def point(i: int, value: float) -> tuple[float, float]:
        return 44 + i / 360 * 340, 170 - (value - 32) / 16 * 130

    picture.line((44, 30), (44, 200), (388, 200), kind="axis")
    for percent in (35, 40, 45):
        picture.text(38, point(0, percent)[1] + 4, f"{percent}%", "", SMALL, "end")
    for i, value in enumerate(readings):
        if value == -99:
            picture.dot(point(i, 0)[0], 190, "wrong")
        else:
            picture.dot(*point(i, value), radius=1.3)
    picture.line(*(point(i, value) for i, value in smooth.items()), kind="curve")
    picture.text(150, 194, "−99: dropped", "alarm", SMALL)
    picture.text(230, 40, "the line: smooth", "blue", SMALL)
    for label, x in (("12:00", 44), ("12:30", 216), ("13:00", 388)):
        picture.text(x, 220, label, "", SMALL, "end" if x == 388 else "middle")
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {"overview": overview, "first_dataflow": first_dataflow}


def draw(folder: Path) -> Sequence[Path]:
    """Write every picture."""
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for name, make in PICTURES.items():
        files.append(folder / f"{name}.svg")
        files[-1].write_text(make().svg(), encoding="utf-8")
    return files


if __name__ == "__main__":
    for path in draw(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "pictures"):
        print(path)

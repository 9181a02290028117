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
    """Return the names that the examples of a page define, as far as the first plot."""
    names: dict[str, Any] = {}
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
        for example in doctest.DocTestParser().get_examples(text):
            if "savefig" in example.source:
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


def records() -> Picture:
    """A line, its record, and a batch of columns."""
    picture = Picture("A line of a file becomes a record with typed fields, and records become a batch of columns", 330)
    picture.text(16, 28, "a line of a file, or a message of a broker", "strong")
    picture.box(16, 38, 368, 30, "a,2024-05-01T12:00:20Z,40.5", kind="store", code=True)
    picture.arrow((200, 68), (200, 92))
    picture.text(212, 86, "types are checked", "", SMALL)
    picture.text(16, 112, "a record", "strong")
    for i, (name, value) in enumerate([("seq", "2"), ("event_time", "12:00:20"), ("bed", "a"), ("moisture", "40.5")]):
        picture.box(16 + 93 * i, 120, 89, 48, name, value)
    picture.arrow((200, 168), (200, 192))
    picture.text(212, 186, "with its neighbours", "", SMALL)
    picture.text(16, 212, "a batch: the records as columns", "strong")
    columns = (("0", "1", "2"), ("12:00:00", "12:00:10", "12:00:20"), ("a", "b", "a"), ("40.1", "null", "40.5"))
    for i, column in enumerate(columns):
        picture.box(16 + 93 * i, 222, 89, 84, *column, code=True)
    return picture


def time() -> Picture:
    """Event times in the order of arrival, stream time, a window's end and a late record."""
    picture = Picture(
        "Stream time only rises with the records that arrive; a record behind a closed window is late", 330
    )
    picture.line((64, 40), (64, 270), (388, 270), kind="axis")
    picture.text(16, 26, "event time: when it happened", "strong")
    picture.text(388, 292, "arrival", "strong", TEXT, "end")

    def point(i: int, seconds: float) -> tuple[float, float]:
        return 64 + 46 * i, 262 - seconds * 2.2

    for label, seconds in (("12:00:00", 0), ("12:01:00", 60)):
        picture.text(60, point(0, seconds)[1] + 4, label, "", 12, "end")
    picture.line((64, 130), (388, 130), kind="cut")
    picture.text(70, 122, "the window ends here", "alarm", SMALL)
    times = (10, 25, 18, 50, 66, 55, 80)
    stream: list[tuple[float, float]] = []
    top = 0.0
    for i, seconds in enumerate(times, 1):
        x, y = point(i, seconds)
        if seconds > top:
            stream += [(x, point(i, top)[1]), (x, y)] if top else [(x, y)]
            top = seconds
    stream.append((388, stream[-1][1]))
    picture.line(*stream, kind="curve")
    for i, seconds in enumerate(times, 1):
        late = i == 6
        picture.dot(*point(i, seconds), "wrong" if late else "dot", 5)
    picture.text(point(6, 55)[0] + 10, point(6, 55)[1] + 5, "late", "alarm", SMALL)
    picture.text(point(3, 18)[0] + 10, point(3, 18)[1] + 5, "out of order: counted", "", SMALL)
    picture.text(384, 78, "stream time", "blue", SMALL, "end")
    picture.line((point(5, 66)[0], 130), (point(5, 66)[0], 300), kind="cut")
    picture.text(point(5, 66)[0], 316, "it closes here", "alarm", SMALL, "middle")
    return picture


def state() -> Picture:
    """Records of two keys, a state for each, and the checkpoint."""
    picture = Picture("Records go to the state of their key; a checkpoint keeps the states with the position", 290)
    picture.text(16, 26, "records", "strong")
    for i, (bed, value) in enumerate((("a", "40"), ("b", "10"), ("a", "41.5"), ("b", "9"))):
        picture.box(16, 38 + 38 * i, 88, 32, f"{bed}: {value}", kind="box" if bed == "a" else "store")
    picture.box(176, 46, 104, 56, "state of a", "last = 41.5")
    picture.box(176, 124, 104, 56, "state of b", "last = 9", kind="store")
    for i, end in enumerate((64, 142, 84, 162)):
        picture.arrow((104, 54 + 38 * i), (174, end))
    picture.text(320, 26, "results", "strong")
    picture.box(320, 58, 66, 32, "+1.5")
    picture.box(320, 136, 66, 32, "−1", kind="store")
    picture.arrow((280, 74), (318, 74))
    picture.arrow((280, 152), (318, 152))
    picture.box(96, 224, 264, 48, "checkpoint", "position: 4 · a: 41.5 · b: 9", kind="good")
    picture.arrow((228, 180), (228, 222))
    return picture


def order() -> Picture:
    """Two ways to cut six records, and the same results."""
    picture = Picture("The same six records cut into batches in two ways give the same results", 300)
    for row, (label, cuts) in enumerate((("one cut", (0, 0, 0, 0, 1, 1)), ("another", (0, 0, 1, 1, 1, 2)))):
        top = 26 + 92 * row
        picture.text(16, top, f"{label} into batches", "strong")
        for batch in sorted(set(cuts)):
            members = [i for i, one in enumerate(cuts) if one == batch]
            left = 20 + 62 * members[0]
            picture.box(left - 6, top + 8, 62 * len(members) - 4, 48, kind="good")
        for i in range(6):
            picture.box(20 + 62 * i, top + 16, 46, 32, f"{i} {'ab'[i % 2]}", kind="box" if i % 2 == 0 else "store")
    picture.text(16, 214, "each key in the order of seq: the same results", "strong")
    picture.box(16, 224, 180, 30, "a: 0 → 2 → 4")
    picture.box(204, 224, 180, 30, "b: 1 → 3 → 5", kind="store")
    picture.text(16, 280, "between a and b there is no order", "", SMALL)
    return picture


def errors() -> Picture:
    """What a step may do with a record."""
    picture = Picture("A step passes a record on, drops it by purpose, or rejects it with a reason", 300)
    picture.box(16, 30, 88, 34, "40")
    picture.box(16, 76, 88, 34, "5", kind="store")
    picture.box(16, 122, 88, 34, "n/a", kind="bad")
    picture.box(156, 66, 92, 56, "step", "with its state")
    for top in (47, 93, 139):
        picture.arrow((104, top), (154, 94 if top == 93 else 78 if top == 47 else 110))
    picture.box(300, 30, 86, 40, "result", kind="good")
    picture.arrow((248, 80), (298, 52))
    picture.text(260, 94, "drops by purpose:", "", SMALL)
    picture.text(260, 110, "a filter does", "", SMALL)
    picture.arrow((202, 122), (202, 190))
    picture.text(212, 160, "rejects: the run goes on", "alarm", SMALL)
    picture.box(60, 192, 326, 84, kind="bad")
    picture.text(76, 216, "the stream errors", "strong")
    picture.text(76, 238, "wrong_type · which step · when", "", SMALL)
    picture.text(76, 260, "moisture = 'n/a' is not of type double", "code", 12)
    return picture


def delivery() -> Picture:
    """Rounds, commits, a crash and the restart."""
    picture = Picture(
        "Position, state and output are committed together; after a crash a run continues at the commit", 330
    )
    picture.text(16, 26, "the input", "strong")
    for i in range(12):
        picture.box(16 + 31 * i, 36, 28, 28, str(i), kind="good" if i < 8 else "bad" if i < 10 else "box")
    picture.line((264, 30), (264, 120), kind="cut")
    picture.text(140, 86, "two rounds, committed", "calm", SMALL, "middle")
    picture.text(270, 86, "crash in the third", "alarm", SMALL)
    picture.box(
        16,
        112,
        232,
        82,
        "a commit, all or nothing",
        "position: 8",
        "state: count = 8",
        "output: files 0 and 1",
        kind="good",
    )
    picture.box(272, 124, 112, 58, "half written", "taken back", kind="bad")
    picture.arrow((132, 194), (132, 226))
    picture.text(16, 246, "the next run with this checkpoint", "strong")
    for i in range(4):
        picture.box(264 + 31 * i, 256, 28, 28, str(8 + i))
    picture.text(254, 275, "reads on at 8, with count = 8", "", SMALL, "end")
    picture.text(16, 312, "each record has its effect once", "calm", SMALL)
    return picture


PICTURES: dict[str, Callable[[], Picture]] = {
    make.__name__: make for make in (overview, first_dataflow, records, time, state, order, errors, delivery)
}


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

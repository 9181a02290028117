"""The page and the other files of a report, from made-up measures; and the command from end to end."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from riot_bench.harness.measure import Measure
from riot_bench.report import files, runner, tables
from riot_bench.report.plan import PlannedExperiment, plan_experiments
from riot_bench.report.store import DONE, Result, ResultStore
from riot_bench.report.tables import COLUMNS, to_csv
from scipy import stats
from typer.testing import CliRunner

from benchmarks.tests import sample_suite
from benchmarks.tests.report.test_store import COUNTS, RELAY, SUITE, of, stored, where
from riot_ops.cli.main import app
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.core.folder_lock import FolderLock
from tests.drawn_images import decode

__all__ = ["where"]
WORDS = of(sample_suite.WORDS)
VOID = {"meta", "link", "br", "img", "hr", "wbr", "path", "use", "rect"}


class Page(HTMLParser):
    """A complete page: every element ends, no name occurs twice, nothing is fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: list[str] = []
        self.links: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []
        assert len(self.names) == len(set(self.names))
        assert {link.removeprefix("#") for link in self.links if link.startswith("#")} <= set(self.names)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        for name in ("src", "href", "data", "action", "srcset", "background"):
            if name in given:
                assert (given[name] or "").startswith(("#", "data:,")), given
                self.links.append(given[name] or "")
        if "id" in given:
            self.names.append(given["id"] or "")
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        if tag == "svg":
            assert given["aria-label"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if "tr" in self.open and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data


def filled(folder: Path, plan: Sequence[PlannedExperiment] = (RELAY, WORDS)) -> ResultStore:
    store = ResultStore(folder)
    for one in plan:
        writer = store.begin(one, quick=True)
        for measure in one.experiment.measures(True):
            writer.measure(measure.to_json())
        writer.end("done")
    return store


def test_figure_of_the_quick_form_alone_is_noted(tmp_path: Path) -> None:
    """A full run is shown although a quick one has more, which is noted; pictures of hidden figures are removed."""
    store = filled(tmp_path, [RELAY])
    files.write_report(store, [RELAY])
    picture, another = tmp_path / "pictures" / "sample-relay-size.png", tmp_path / "pictures" / "mine.png"
    another.touch()
    assert picture.exists()
    stored(store, RELAY, quick=False)  # nothing that the figure is of
    [result] = store.shown([RELAY])
    assert tables.describe_state(result).startswith("done; the quick form alone has Rate by size")
    files.write_report(store, [RELAY])
    assert not picture.exists() and another.exists()


def test_page_is_complete_and_self_contained(tmp_path: Path) -> None:
    store = filled(tmp_path / "ü")
    stored(store, COUNTS, state="failed")
    made = files.write_report(store, [RELAY, WORDS, COUNTS, of(sample_suite.SILENT)], title="A & <b>")
    text = made.read_text(encoding="utf-8")
    page = Page(text)
    assert not re.search(r"https?:|@import|url\((?!#)", text)
    assert "prefers-color-scheme: dark" in text
    assert 'name="viewport" content="width=device-width' in text
    assert text.count("<svg ") == 2
    cells = next(row for row in page.rows if row[0] == "sample/relay/local/50B")
    assert cells[1] == "1,920,000"
    assert cells[3:8] == ["4", "messages/s", "2,000,000", "≥ 100,000", "yes"]
    assert cells[8] == sample_suite.NASTY
    values = [2e6 / 1.05 * f for f in (0.9, 1.0, 1.1, 1.02)]
    low, high = stats.t.interval(0.95, 3, sum(values) / 4, stats.sem(values))
    shown = [float(v.replace(",", "")) for v in re.findall(r"[\d,]+", cells[2])]
    assert shown == pytest.approx([sum(values) / 4, low, high], rel=0.01)
    lost = next(row for row in page.rows if row[0] == "sample/relay/lost")
    assert lost[1:4] == ["0", "too few: 1", "1"]
    summary = {row[0]: row[1:] for row in page.rows if row[0] in ("sample/relay", "sample/counts", "sample/silent")}
    assert summary["sample/relay"][1] == "done"
    assert summary["sample/relay"][0] == "5 of 7 (2 short)"
    assert summary["sample/counts"][1] == "failed: why"
    assert summary["sample/silent"][1] == "not run"
    for words in (
        f"Message relay {sample_suite.NASTY}",
        "A & <b>",
        "No measures for: Nothing of it",
        "not for quoting",
    ):
        assert words in page.text
    assert "<b>" not in text
    assert "5 of 7 measures with a target reach it" in page.text
    missed = next(row for row in page.rows if row[0] == "sample/relay/spark/10000B")
    assert missed[7] == "missed"
    findings = text.partition("<h2>Findings</h2>")[2].partition("</section>")[0]
    verdicts = re.findall(r">([^<>]*(?:<wbr>[^<>]*)*) instead of ≥ 100,000", findings)
    assert [one.replace("<wbr>", "") for one in verdicts] == [
        "sample/relay/spark/10000B: 10,900 messages/s",  # the widest miss first
        "sample/relay/spark/1000B: 60,000 messages/s",
    ]
    assert text.index("<h2>Findings</h2>") < text.index("sample/relay/local/50B".replace("/", "/<wbr>"))
    assert "what the project wants of itself" in findings
    files.write_report(filled(tmp_path / "words", [WORDS]), [WORDS])
    text = (tmp_path / "words" / "index.html").read_text(encoding="utf-8")
    assert "with a target" not in Page(text).text.partition("<svg")[0]


@pytest.mark.parametrize(("other", "note"), [("commit", "done; of commit 0ld"), ("describe_machine", "done; on 0ld")])
def test_results_of_another_commit_or_machine_are_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, note: str
) -> None:
    monkeypatch.setattr(f"riot_bench.report.store.{other}", lambda **_: "0ld")
    store = filled(tmp_path, [RELAY])
    monkeypatch.undo()
    made = files.write_report(store, [RELAY])
    assert note in Page(made.read_text(encoding="utf-8")).text
    assert note in (tmp_path / "report.md").read_text(encoding="utf-8")


def form_of(row: list[str]) -> tuple[str, str, str]:
    """Name, state and form of a row of the summary."""
    return row[0], row[2], row[3]


def test_page_shows_the_best_form_of_every_stored_experiment(tmp_path: Path) -> None:
    store = filled(tmp_path, [RELAY, WORDS])
    stored(store, RELAY, quick=False, value=5.0)
    stored(store, WORDS, quick=False, state="failed")
    gone = of(replace(sample_suite.COUNTS, key="sample/gone"))
    stored(store, gone)
    micro = next(one for one in plan_experiments(["riotbench"]))
    stored(store, micro, quick=False)
    stored(store, PlannedExperiment("sys.tool", "sys.tool", replace(sample_suite.COUNTS, key="sys/other")))
    made = files.write_report(store, [RELAY, of(sample_suite.SILENT)])
    page = Page(made.read_text(encoding="utf-8"))
    rows = [row for row in page.rows if len(row) == 7][1:]
    assert list(map(form_of, rows)) == [
        (micro.key, "done", "full"),
        ("sample/relay", "done; the quick form alone has Rate by size", "full"),
        ("sample/words", "done; in the full form failed: why", "quick"),
        ("sample/silent", "not run", ""),
        ("sample/gone", "done", "quick"),
        ("sys/other", "done", "quick"),
    ]
    assert "2 experiments in the full form, 3 in the quick form" in page.text
    assert "--suite sys.tool loads its figures." in page.text
    values = {row[0]: row[1] for row in page.rows if len(row) == len(COLUMNS)}
    assert values["sample/x"] == "1"
    assert "sample/relay/local/50B" not in values
    assert (tmp_path / "riotbench.csv").exists()
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert r"| sample/relay | done; the quick form alone has Rate by size | full |" in text
    assert r"| sample/gone | done | quick |" in text


#: The parts of a browser that the script of a page needs: a table of one head and rows, as plain objects.
BROWSER = """
const [kind, texts] = JSON.parse(process.argv[1]);
const body = {rows: texts.map(t => ({cells: [t !== null && typeof t === "object" ? {dataset: {v: t[0]}, textContent: t[1]}
  : {dataset: {}, textContent: t}]})), append(...rows) { this.rows = rows; }};
const told = {}, table = {tBodies: [body]};
const head = {cellIndex: 0, classList: {contains: name => name === kind}, parentNode: {cells: []}, closest: () => table,
  getAttribute: name => told[name] ?? null, setAttribute: (name, to) => { told[name] = to; },
  removeAttribute: name => { delete told[name]; }};
head.parentNode.cells.push(head);
let click;
const button = {closest: () => head, addEventListener: (what, then) => { if (what === "click") click = then; }};
globalThis.document = {querySelectorAll: what => what === "th button" ? [button] : []};
"""
SHOW = """
const found = [0, 1, 2].map(() => { click(); return [told["aria-sort"], body.rows.map(r => r.cells[0].textContent)]; });
console.log(JSON.stringify(found));
"""


def test_column_buttons_sort_the_table(tmp_path: Path) -> None:
    """By Enter, Space or a click, which are equal for a button; rows without a value are last in both orders."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node")
    made = files.write_report(filled(tmp_path), [RELAY])
    text = made.read_text(encoding="utf-8")
    script = text.partition("<script>")[2].partition("</script>")[0]
    heads = re.findall(r"<th [^>]*>(.*?)</th>", text)
    assert heads and all(re.fullmatch(r'<button type="button">[^<]+</button>', head) for head in heads)

    def by(kind: str, *texts: str | tuple[str, str]) -> list[tuple[str, list[str]]]:
        command = [node, "-e", BROWSER + script + SHOW, json.dumps([kind, texts])]
        return [tuple(one) for one in json.loads(subprocess.run(command, capture_output=True, check=True).stdout)]

    def ways(up: list[str], last: list[str]) -> list[tuple[str, list[str]]]:
        return [("ascending", up + last), ("descending", up[::-1] + last), ("ascending", up + last)]

    numbers = ["-1.5e+03", "−3", "-0.48 (-2–4.48)", "0 ms", "≥ 7", "9.5 s", "10 of 12", "1,920,000", "3e+07"]
    none = ["", "–", "too few: 2", "nan"]
    shuffled = [numbers[i] for i in (4, 8, 0, 6, 2, 7, 1, 5, 3)]
    assert by("n", *none[:2], *shuffled, *none[2:]) == ways(numbers, none)
    assert by("n", ("2", "x"), ("", "5"), ("10", "y"), ("-1", "z")) == ways(["z", "x", "y"], ["5"])
    assert by("", "b", "a/10", "", "a/9", "–") == ways(["a/9", "a/10", "b"], ["", "–"])


@pytest.mark.long
@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1400, "light")])
def test_page_in_a_browser(tmp_path: Path, open_page: Any, width: int, scheme: str) -> None:
    """It fits, draws its charts, is usable by keyboard and screen reader, and shows markup in texts as text."""
    made = files.write_report(filled(tmp_path / "report"), [RELAY, WORDS], title="A & <b>")
    page = open_page(made.as_uri(), viewport={"width": width, "height": 900}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("svg path").first.bounding_box()["width"] > 20
    assert sample_suite.NASTY in page.locator("body").inner_text()
    for details in page.locator("details:not([open]) > summary").all():
        details.press("Enter")
    head = page.locator("th button").first
    before = page.locator("tbody").first.locator("tr").all_inner_texts()
    head.press("Enter")
    head.press("Space")
    after = page.locator("tbody").first.locator("tr").all_inner_texts()
    assert sorted(after) == sorted(before) and len(after) > 1
    assert page.locator("th[aria-sort=descending]").count() == 1
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    page.screenshot(path=tmp_path / "report.png", full_page=True)


def test_markdown_pictures_and_csv_of_the_page(tmp_path: Path) -> None:
    store = filled(tmp_path)
    files.write_report(store, [RELAY, WORDS])
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "![Rate by size](pictures/sample-relay-size.png)" in text
    assert r"a \<b\>&\"quoted\"\</b\> \| \*x\*".replace(r"\"", '"') in text
    table = [line for line in text.splitlines() if line.startswith("| sample")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {7, 11}
    assert sorted(p.name for p in (tmp_path / "pictures").iterdir()) == [
        "sample-relay-size.png",
        "sample-words-form.png",
    ]
    assert all(decode(path).size for path in (tmp_path / "pictures").iterdir())
    rows = list(csv.DictReader(io.StringIO((tmp_path / f"{SUITE}.csv").read_text(encoding="utf-8"))))
    assert len(rows) == 8 + 21
    first = rows[0]
    assert first["measure"] == "sample/relay/local/50B"
    assert float(first["published"]) == 2e6
    assert [first[k] for k in ("runs", "reach", "met", "seed", "quick", "against")] == [
        "4",
        "100000.0",
        "True",
        "7",
        "True",
        sample_suite.NASTY,
    ]
    assert float(first["low"]) < float(first["value"]) < float(first["high"])
    assert rows[3]["low"] == ""
    assert to_csv([]).startswith("suite,experiment,measure,value,unit,mean,low,high,runs")


def test_page_lists_experiments_outside_the_report(tmp_path: Path) -> None:
    reuse, suites = plan_experiments(["reuse"]), "all of riotbench, dspbench, neptune, streambench, threat"
    store = filled(tmp_path, [RELAY])
    stored(store, reuse[1])
    files.write_report(store, [RELAY, reuse[2]])
    others = ", ".join(one.key for one in reuse if one not in reuse[1:3])
    scope = f"Not in this report: {others}; {suites}."
    assert scope in Page((tmp_path / "index.html").read_text(encoding="utf-8")).text
    assert scope.replace("_", r"\_") in (tmp_path / "report.md").read_text(encoding="utf-8")
    everything = [Result(one, [], 0, "missing", "", 0.0, {}) for one in plan_experiments()]
    assert tables.describe_missing(everything) == ""
    assert tables.describe_missing(everything[:-1]) == f"Not in this report: {everything[-1].planned.key}."
    of_reuse = [one for one in everything if one.planned.suite == "reuse"]
    assert tables.describe_missing(of_reuse) == f"Not in this report: {suites}."
    files.write_report(filled(tmp_path / "own", [RELAY]), [RELAY])
    for name in ("index.html", "report.md"):
        assert "Not in this report" not in (tmp_path / "own" / name).read_text(encoding="utf-8")


def test_markup_in_texts_is_escaped(tmp_path: Path) -> None:
    nasty, escaped = "<b> *x* [y](z) `c`", r"\<b\> \*x\* \[y\](z) \`c\`"
    words = of(replace(sample_suite.WORDS, title=f"T {nasty}", about=f"A {nasty}\n# more"))
    writer = ResultStore(tmp_path).begin(words, quick=True)
    for measure in words.experiment.measures(True):
        writer.measure(measure.to_json())
    writer.end("failed", "TypeError: <class 'x.Y'> is not *callable*")
    pictures = {"sample/words": [("p.png", f"F {nasty}", f"N {nasty}")]}
    lines = tables.to_markdown(f"R {nasty}", ResultStore(tmp_path).shown([words]), pictures).splitlines()
    for line in (
        f"# R {escaped}",
        f"## T {escaped}",
        rf"`sample/words`. A {escaped} # more",
        r"*Failed: TypeError: \<class 'x.Y'\> is not \*callable\*.*  ",
        f"![F {escaped}](p.png)",
        f"F {escaped}. N {escaped}",
    ):
        assert line in lines, line
    assert any(line.startswith("- Versions: riot\\_ops ") for line in lines)


def test_files_are_replaced_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For concurrent readers, and after any failed write, the earlier file exists, and no other."""
    store = filled(tmp_path, [WORDS])
    files.write_report(store, [WORDS])

    def found() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    made, refused, touched = found(), set[str](), set[str]()
    assert set(made) == {"index.html", "report.md", f"{SUITE}.csv", "sample-words-form.png", "results.jsonl"}
    write = Path.write_bytes

    def written(self: Path, content: bytes) -> int:
        touched.add(self.name)
        if any(name in self.name for name in refused):
            write(self, content[:10])
            raise OSError("the disk is full")
        return write(self, content)

    monkeypatch.setattr(Path, "write_bytes", written)
    monkeypatch.setattr(Path, "write_text", lambda *_, **__: pytest.fail("not as a whole"))
    refused.add("index.html")
    with pytest.raises(OSError, match="the disk is full"):
        files.write_report(store, [WORDS], title="new")
    assert set(found()) == set(made)
    assert found()["index.html"] == made["index.html"]
    refused.clear()
    touched.clear()
    files.write_report(store, [WORDS], title="new")
    assert set(found()) == set(made)
    assert b"<title>new</title>" in found()["index.html"]
    assert len(touched) == 4
    assert touched.isdisjoint(made), "each is written beside first"


# -- the command -----------------------------------------------------------------------------------


def report(*args: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["report", "--suite", SUITE, *map(str, args)])
    assert result.exit_code == code, result.output
    return result.output


def test_two_experiments_from_end_to_end(tmp_path: Path, where: Path) -> None:
    chosen = ("--experiment", "sample/counts", "--experiment", "sample/relay", "--out", tmp_path / "r")
    report_text = report(*chosen)
    assert "1 of 2, about 0:02 left: sample/relay" in report_text
    assert "sample/counts: done" in report_text
    assert str(tmp_path / "r" / "index.html") in report_text
    first = (tmp_path / "r" / "results.jsonl").read_text()
    assert "done" not in report(*chosen)
    assert (tmp_path / "r" / "results.jsonl").read_text() == first
    report(*chosen, "--page", "--again")
    assert where.read_text() == "1"
    report(*chosen[2:], "--experiment", "sample/counts", "--again")
    assert where.read_text() == "2"
    report(*chosen[2:], "--experiment", "sample/counts", "--repeat", 3)
    assert where.read_text() == "3"
    lines = [json.loads(line) for line in (tmp_path / "r" / "results.jsonl").read_text().splitlines()]
    assert all(line["quick"] for line in lines)
    page = Page((tmp_path / "r" / "index.html").read_text(encoding="utf-8"))
    assert next(row for row in page.rows if row[0] == "sample/counts/times")[3] == "3"
    report("--experiment", "sample/counts", "--full", "--out", tmp_path / "r")
    assert where.read_text() == "4"
    page = Page((tmp_path / "r" / "index.html").read_text(encoding="utf-8"))
    assert {row[0]: row[3] for row in page.rows if len(row) == 7} == {
        "experiment": "form",
        "sample/relay": "quick",
        "sample/counts": "full",
    }
    report("--experiment", "sample/counts", "--out", tmp_path / "r")
    assert where.read_text() == "4", "in the quick form nothing is missing that the full one has"


def test_failed_experiment_sets_the_exit_code(tmp_path: Path, where: Path) -> None:
    report_text = report("--experiment", "sample/breaks", "--out", tmp_path, code=1)
    assert "sample/breaks: failed" in report_text
    assert "ValueError: no <luck>" in Page((tmp_path / "index.html").read_text(encoding="utf-8")).text


def test_misuse_is_refused(tmp_path: Path) -> None:
    for arguments in (["--experiment", "sample/rely"], ["--experiment", "sample/relay", "--patience", "-1"]):
        result = CliRunner().invoke(app, ["report", "--suite", SUITE, "--out", str(tmp_path / "x"), *arguments])
        assert isinstance(result.exception, ConfigError)


def test_two_reports_at_once_need_two_folders(tmp_path: Path, where: Path) -> None:
    chosen = ("report", "--suite", SUITE, "--experiment", "sample/counts", "--out", str(tmp_path / "r"))
    with FolderLock([tmp_path / "r"]):
        command = [sys.executable, "-m", "riot_ops", *chosen]
        second = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
        assert second.returncode == 2
        assert f"r is in use by process {os.getpid()} on this host" in second.stderr
        assert [path.name for path in (tmp_path / "r").iterdir()] == [".riot_ops.lock"], "not even a page"
        report(*chosen[3:], "--page")
        assert not where.exists()
    report(*chosen[3:])
    assert where.read_text() == "1"
    assert not (tmp_path / "r" / ".riot_ops.lock").exists()


@pytest.mark.parametrize("what", ["missing_runs", "run_all"])
def test_folder_is_locked_while_a_report_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A run that another process has just stored would be missing otherwise."""

    def looks(*_: object) -> None:
        with pytest.raises(ConnectorError, match="is in use by this process"):
            FolderLock([tmp_path])
        raise RuntimeError("it was looked")

    monkeypatch.setattr(runner, what, looks)
    arguments = ["report", "--suite", SUITE, "--experiment", "sample/counts", "--out", str(tmp_path)]
    result = CliRunner().invoke(app, arguments)
    assert str(result.exception) == "it was looked"
    FolderLock([tmp_path]).release()


def test_list_of_experiments() -> None:
    lines = report("--list").splitlines()
    assert len(lines) == len(sample_suite.EXPERIMENTS)
    assert lines[1].split() == ["sample/words", SUITE, "0:01", "0:02", "Programs", "by", "form"]
    everything = CliRunner().invoke(app, ["report", "--list"]).output
    assert "micro" in everything
    assert "dspbench" in everything


def test_ctrl_c_writes_the_page_of_finished_experiments(tmp_path: Path, where: Path) -> None:
    command = [sys.executable, "-m", "riot_ops", "report", "--suite", SUITE, "--out", str(tmp_path / "r")]
    for key in ("relay", "hangs", "counts"):
        command += ["--experiment", f"sample/{key}"]
    # a process started in the background, as by a shell, ignores Ctrl-C; this one is in the foreground
    restore = (
        "import os, signal, sys; signal.signal(2, signal.default_int_handler); os.execv(sys.argv[1], sys.argv[1:])"
    )
    program = subprocess.Popen(
        [sys.executable, "-c", restore, *command],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    until = time.monotonic() + 60
    while not where.exists():
        assert time.monotonic() < until
        assert program.poll() is None
        time.sleep(0.1)
    program.send_signal(signal.SIGINT)
    _, report_text = program.communicate(timeout=60)
    assert program.returncode == 130, report_text
    page = Page((tmp_path / "r" / "index.html").read_text(encoding="utf-8"))
    states = {row[0]: row[2] for row in page.rows if len(row) == 7}
    assert states["sample/relay"] == "done"
    assert states["sample/hangs"] == "stopped: stopped by the user"
    assert states["sample/counts"] == "not run"


def test_killed_report_ends_its_experiment(tmp_path: Path, where: Path) -> None:
    command = [sys.executable, "-m", "riot_ops", "report", "--suite", SUITE, "--out", str(tmp_path / "r")]
    with subprocess.Popen([*command, "--experiment", "sample/hangs"], stderr=subprocess.DEVNULL) as program:
        until = time.monotonic() + 60
        while not where.exists():
            assert time.monotonic() < until
            time.sleep(0.1)
        program.kill()
    one, started = (psutil.Process(int(pid)) for pid in where.read_text().split())
    started.kill()
    one.wait(timeout=30)
    report("--experiment", "sample/hangs", "--page", "--out", tmp_path / "r")
    assert "the program was killed" in Page((tmp_path / "r" / "index.html").read_text(encoding="utf-8")).text


def test_figures_of_a_busy_machine_are_marked() -> None:
    quiet, busy = (Measure("x", 1.0, "s", load=((before, 1.5),)) for before in (1.9, 2.6))
    assert tables.measure_cells(quiet)[-1] == "1.9, 1.5"
    assert tables.measure_cells(busy)[-1] == "2.6, 1.5 ⚠ busy machine"
    result = Result(of(sample_suite.SILENT), [quiet, busy], 1, DONE, "", 1.0, {}, "")
    assert any(note.startswith("1 of 2 measures, marked by ⚠") for note in tables.list_remarks(result))
    assert "1 measures, marked by ⚠" in tables.describe_findings([result])


def test_findings_begin_with_the_widest_miss() -> None:
    given = [
        Measure("half", 50.0, "x/s", reach=100),
        Measure("good", 200.0, "x/s", reach=100),
        Measure("slow", 30.0, "ms", reach=10, at_most=True),
        Measure("lost", 1.0, "messages", reach=0, at_most=True),
        Measure("open", 1.0, "ratio", reach=10, lower_bound=True),
    ]
    found = tables.list_findings([Result(of(sample_suite.SILENT), given, 1, DONE, "", 1.0, {}, "")])
    assert [(key, m.measure) for key, m in found] == [("sample/silent", name) for name in ("lost", "slow", "half")]

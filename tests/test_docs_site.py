"""The documentation site: what its build refuses, what its pages hold, and the whole of it in a browser."""

from __future__ import annotations

import contextlib
import functools
import http.server
import importlib
import io
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOL = ROOT / "tools" / "docs_site"
SCREENSHOTS = ROOT / "build" / "screenshots" / "site"


@pytest.fixture(scope="module")
def tool():
    """The modules of the tool, by name; they import each other as siblings."""
    before = set(sys.modules)
    sys.path.insert(0, str(TOOL))
    yield importlib.import_module
    sys.path.remove(str(TOOL))
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and Path(sys.modules[name].__file__).is_relative_to(TOOL):
            del sys.modules[name]


def page(tool, text, path="howto/new.md", **fields):
    return tool("pages").Page(path, text, f"docs/{path}", **fields)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("gone.md", "docs/howto/new.md:3: gone.md leads to no page or file"),
        ("new.md#other", "docs/howto/new.md:3: new.md#other leads to no heading of docs/howto/new.md"),
        ("../../src/gone.py", "docs/howto/new.md:3: ../../src/gone.py leads to no page or file"),
    ],
)
def test_broken_link_is_refused_with_its_line(tool, target, problem):
    one = page(tool, f"# New\n\nSee [it]({target}), not `[it](code.md)`.\n")
    with pytest.raises(tool("pages").Problem) as caught:
        tool("pages").with_site_links(one, {one.path: one}, {})
    assert str(caught.value) == problem


def test_links_to_files_become_those_of_the_site(tool):
    other = page(tool, "# Other\n\n## A `part`\n", "concepts/other.md")
    text = "[a](../concepts/other.md#a-part) [b](../../src/riot_ops/task.py) [c](https://example.org) ![d](../pictures/overview.svg)"
    one = page(tool, text)
    found = tool("pages").with_site_links(
        one, {p.path: p for p in (one, other)}, {"src/riot_ops/task.py": "tasks/x.md"}
    )
    assert found.text == (
        "[a](../concepts/other.md#a-part) [b](../tasks/x.md) [c](https://example.org) ![d](../pictures/overview.svg)"
    )


def test_page_outside_the_navigation_is_refused(tool):
    one = page(tool, "# Odd\n", "odd/page.md")
    [problem] = tool("checks").missing_from_navigation({one.path: one})
    assert problem.startswith("docs/odd/page.md:1: ")
    every = tool("pages").read_pages()
    assert tool("checks").missing_from_navigation(every) == []


def test_code_that_is_no_python_is_refused_with_its_line(tool):
    text = "# New\n\n```python\nx = 1\ny = = 2\n```\n\n```python\n>>> no python here\n```\n"
    [problem] = tool("checks").blocks_that_do_not_compile([page(tool, text)])
    assert problem == "docs/howto/new.md:5: invalid syntax"


@pytest.mark.long
def test_code_block_that_fails_is_refused_with_its_line(tool, tmp_path):
    (tmp_path / "README.md").write_text("# New\n\n```python\n>>> 1 + 1\n3\n\n```\n")
    run = tool("code_blocks").CodeRun([str(tmp_path / "README.md")], processes=0)
    with pytest.raises(tool("pages").Problem, match=r"README\.md:4: DocTestFailure"):
        run.finish()


def test_diagram_that_cannot_be_drawn_is_refused_with_its_line(tool):
    one = page(tool, "# New\n\n```mermaid\nsequenceDiagram\n  a->>b: hello\n```\n")
    with pytest.raises(tool("pages").Problem, match=r"docs/howto/new\.md:3: only flowcharts"):
        tool("site_build").with_flowcharts(one)
    drawn = tool("site_build").with_flowcharts(
        page(tool, '```mermaid\nflowchart LR\n  a(["in"]) -->|"x"| b["<mean>"]\n```\n')
    )
    assert all(text in drawn.text for text in ("<svg", ">in<", ">x<", "&lt;mean&gt;"))


def test_page_that_loads_from_elsewhere_is_refused(tool, tmp_path):
    one = page(tool, "# New\n", "new.md")
    (tmp_path / "new.html").write_text('<link rel="canonical" href="https://example.org/new.html"><p>fine</p>')
    tool("checks").rendered(tmp_path, {one.path: one})
    (tmp_path / "new.html").write_text('<script src="https://cdn.example.org/x.js"></script>')
    with pytest.raises(tool("pages").Problem, match=r"docs/new\.md:1: the page loads https://cdn"):
        tool("checks").rendered(tmp_path, {one.path: one})


def test_versions_stand_beside_each_other_the_newest_first(tool, tmp_path):
    html = tmp_path / "html"
    html.mkdir()
    for version in ("0.9.0", "0.10.0", "0.9.1"):
        (html / "index.html").write_text(version)
        tool("site_build").publish(html, tmp_path / "site", version)
    listed = json.loads((tmp_path / "site" / "versions.json").read_text())
    assert [(one["version"], one["aliases"]) for one in listed] == [
        ("0.10.0", ["latest"]),
        ("0.9.1", []),
        ("0.9.0", []),
    ]
    assert "url=0.10.0/index.html" in (tmp_path / "site" / "index.html").read_text()
    assert (tmp_path / "site" / "0.9.0" / "index.html").read_text() == "0.9.0"


def blocks(tool, text, language):
    found = tool("markdown_text").code_blocks(text)
    return [block.text for block in found if block.language == language]


@pytest.mark.parametrize("name", ["KalmanFilter", "RangeFilter"])
def test_page_of_a_task_shows_what_its_code_gives(tool, name):
    from riot_ops import tasks as t

    text = tool("task_pages").page(getattr(t, name))
    assert "```math\n" in text and "<svg" in text and f"#riot_ops.tasks.{name} " in text
    assert re.findall(r'^=== "(.+)"$', text, re.MULTILINE) == ["One event", "A table", "A running stream"]
    setup, event, _, stream = blocks(tool, text, "python")
    scope, said = {}, io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(setup + event, scope)
    numbers = [float(n) for n in re.findall(r"-?\d+\.\d+", said.getvalue())]
    [shown] = blocks(tool, text, "text")
    assert [float(n) for n in re.findall(r"-?\d+\.\d+", shown)] == pytest.approx(numbers, rel=1e-4)
    exec(stream, scope)
    rows = text.partition('=== "A running stream"')[2].count("\n    | ") - 1
    assert scope["result"]["result"].num_rows == rows > 1


def test_task_without_an_example_is_refused(tool, monkeypatch):
    from riot_ops import tasks as t

    monkeypatch.delitem(tool("task_examples").EXAMPLES, "NoOp")
    with pytest.raises(tool("pages").Problem, match=r"src/riot_ops/tasks/math/no_op\.py:1: NoOp has no example"):
        tool("task_pages").page(t.NoOp)


def test_public_names_have_examples(tool):
    api = tool("api_pages")
    assert [problem for entry in api._entries() for problem in api._without_example(*entry)] == []
    stable = (ROOT / "docs" / "stability.md").read_text().partition("- `open_blobs`")[0]
    named = {name.removesuffix(".__all__") for name in re.findall(r"`(riot_ops[\w.]*)`", stable)}
    assert len(named) > 8 and named - {"riot_ops.map", "riot_ops.filter"} <= {*api.PACKAGES}


def test_name_without_an_example_is_refused(tool):
    def bare():
        """Do nothing."""

    [problem] = tool("api_pages")._without_example("riot_ops", "bare", bare)
    assert re.fullmatch(r"tests/test_docs_site\.py:\d+: riot_ops\.bare has no example", problem)


# -- the whole site --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site():
    """The address of the site of this version, built from these sources."""
    done = subprocess.run(
        [sys.executable, str(TOOL), "build", "--no-code"], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=str(ROOT / "site"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def visit(browser, site):
    """Opens pages as ``visit(place, width, scheme)``; nothing may come from elsewhere or be missing, consoles stay silent."""
    contexts, wrong = [], []
    from riot_ops import __version__

    def open_(place, width=1400, scheme="light"):
        contexts.append(browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme))
        page = contexts[-1].new_page()
        page.on("console", lambda one: wrong.append(one.text) if one.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on(
            "request", lambda one: wrong.append(one.url) if not one.url.startswith((site, "data:", "blob:")) else None
        )
        page.on("response", lambda one: wrong.append(f"{one.status} {one.url}") if one.status >= 400 else None)
        page.goto(f"{site}/{__version__}/{place}.html")
        return page

    yield open_
    for context in contexts:
        context.close()
    assert wrong == []


#: One page of each kind.
KINDS = (
    "index", "start/first_dataflow", "concepts/time", "howto/kafka", "gallery/01_csv_to_alerts", "tasks",
    "tasks/kalman_filter", "dataflows/stats", "papers/riotbench", "benchmarks", "architecture/house", "adr/index",
    "api/riot_ops.windows", "contributing", "common_mistakes",
)  # fmt: skip


@pytest.mark.slow  # builds the whole site, and opens sixty pages
@pytest.mark.integration
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("place", KINDS)
def test_page_of_each_kind_is_accessible_and_fits(visit, place, width, scheme):
    from axe_playwright_python.sync_playwright import Axe

    page = visit(place, width, scheme)
    page.wait_for_load_state("networkidle")
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(SCREENSHOTS / f"{place.replace('/', '-')}-{width}-{scheme}.png"))
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    found = Axe().run(page).response["violations"]
    assert [(one["id"], [node["html"][:200] for node in one["nodes"]][:3]) for one in found] == []


@pytest.mark.slow
@pytest.mark.integration
def test_search_finds_a_task(visit):
    page = visit("index")
    page.wait_for_load_state("networkidle")
    page.get_by_role("button", name="Search").first.click()
    words = page.locator("input:visible").first
    words.wait_for(timeout=60_000)
    words.fill("Kalman filter")
    result = page.locator("a[href*='kalman_filter.html']").first
    result.wait_for(timeout=60_000)
    result.click()
    page.wait_for_url(re.compile("kalman_filter"), timeout=60_000)


@pytest.mark.slow
@pytest.mark.integration
def test_formula_and_plot_of_a_task_are_drawn(visit):
    page = visit("tasks/kalman_filter")
    formula = page.locator("math").first.bounding_box()
    assert formula["width"] > 100 and formula["height"] > 15
    fraction = page.locator("math mfrac").first.bounding_box()
    assert fraction["height"] > 1.5 * page.locator("math mi").first.bounding_box()["height"]
    plot = page.locator("svg.series")
    assert plot.bounding_box()["width"] > 400
    assert plot.locator("path.out").first.bounding_box()["height"] > 40
    assert plot.locator("circle.in").count() > 100


@pytest.mark.slow
@pytest.mark.integration
def test_selector_lists_the_versions(visit):
    from riot_ops import __version__

    page = visit("index")
    page.locator(".md-version__current").wait_for(timeout=60_000)
    assert page.locator(".md-version__current").inner_text().startswith(__version__)


@pytest.mark.slow
@pytest.mark.integration
def test_pages_open_as_files(browser, site):
    from riot_ops import __version__

    page = browser.new_page()
    page.goto((ROOT / "site" / __version__ / "index.html").as_uri())
    page.get_by_role("link", name="Tasks").first.click()
    page.wait_for_url(re.compile(r"tasks\.html"), timeout=60_000)
    assert page.locator("h1").inner_text().startswith("Tasks")
    page.close()

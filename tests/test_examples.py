"""The examples run, and the pages of the gallery show what they give now."""

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from riot_ops.testing.services import Mosquitto

ROOT = Path(__file__).resolve().parent.parent
TOOL = ROOT / "tools" / "gallery.py"
sys.path.insert(0, str(TOOL.parent))
gallery = pytest.importorskip("gallery")

NAMES = sorted(path.stem for path in gallery.EXAMPLES.glob("*.py"))
ON_SPARK = {"02_smart_city_statistics"}


def write_pages(folder, names, **environment):
    """Run examples in a process of their own, which writes their pages; return what it said."""
    known = {name: value for name, value in os.environ.items() if name != "BROKER"} | environment
    command = [sys.executable, str(TOOL), "--out", str(folder), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=known, cwd=folder)
    return done.stderr


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder with the pages of the examples in process, all written by one process, and what it said."""
    folder = tmp_path_factory.mktemp("gallery")
    return folder, write_pages(folder, [name for name in NAMES if name not in ON_SPARK])


def compare(name, folder, said):
    """Compare a page and its pictures with those that are kept."""
    page = folder / f"{name}.md"
    assert page.exists(), said
    kept = (gallery.PAGES / page.name).read_text(encoding="utf-8")
    assert page.read_text(encoding="utf-8") == kept, f"run: python tools/gallery.py {name}"
    pictures = re.findall(r"\]\(pictures/(.+?)\)", kept)
    assert pictures[-1] == f"{name}.svg"
    for picture in pictures:
        drawn = (ET.parse(one / "pictures" / picture).getroot() for one in (folder, gallery.PAGES))
        assert all(len([*root.iter()]) > 10 for root in drawn), picture


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ON_SPARK])
def test_example_gives_its_page(name, written):
    compare(name, *written)


@pytest.mark.spark
@pytest.mark.parametrize("name", sorted(ON_SPARK))
def test_example_on_spark_gives_its_page(name, tmp_path):
    compare(name, tmp_path, write_pages(tmp_path, [name]))


@pytest.mark.slow  # it differs from the run above in the broker alone
@pytest.mark.integration
def test_lakehouse_example_gives_the_same_with_a_server(tmp_path):
    name = "09_mqtt_to_a_lakehouse"
    with Mosquitto() as broker:
        compare(name, tmp_path, write_pages(tmp_path, [name], BROKER=broker.url))


CLAIMS = {
    "02_smart_city_statistics": "\n".join(f"{name}: the same on Spark" for name in ("avg", "kalman", "slr", "dac")),
    "04_train_and_swap_a_model": "readings: 18981 · predicted: 18981 · rejected: 0",
    "08_edit_a_running_job": "Bob's means: 7775 · the same as alone: True",
    "09_mqtt_to_a_lakehouse": "readings and rejected readings: 60000 · expected: 60000\ntwice: 0",
    "10_write_an_operator": "the same as the function: True",
}


@pytest.mark.parametrize("name", CLAIMS)
def test_page_shows_what_its_text_claims(name):
    assert CLAIMS[name] in (gallery.PAGES / f"{name}.md").read_text(encoding="utf-8")


def test_second_model_is_better_on_its_page():
    page = (gallery.PAGES / "04_train_and_swap_a_model.md").read_text(encoding="utf-8")
    first, second = (float(mean) for mean in re.findall(r"^\| GRID-MLR-\d+\.model \| ([\d.]+) \|", page, re.MULTILINE))
    assert second < first / 2


def test_index_has_each_example():
    pages = [gallery.Page(name, (gallery.PAGES / f"{name}.md").read_text(encoding="utf-8"), {}) for name in NAMES]
    assert (gallery.PAGES / "README.md").read_text(encoding="utf-8") == gallery.index_of(pages)
    assert all(len(page.title) < 60 and page.sentence.endswith((".", "?")) for page in pages)


def test_no_page_or_picture_is_left_over():
    pages = [gallery.PAGES / f"{name}.md" for name in ("README", *NAMES)]
    assert {*gallery.PAGES.glob("*.md")} == {*pages}
    shown = {
        name for page in pages for name in re.findall(r"pictures/([\w.-]+\.svg)", page.read_text(encoding="utf-8"))
    }
    assert {path.name for path in (gallery.PAGES / "pictures").iterdir()} == shown


def test_output_of_a_cell(tmp_path):
    names = {}
    source = "import pandas as pd\nprint('one')\npd.DataFrame({'a|b': [1.5, None], 'c': ['x', 'y|z']})"
    output = gallery.run_cell(gallery.Cell("code", source, 7), names, tmp_path / "x.py")
    assert output.text == ["```text\none\n```", "| a\\|b | c |\n|---:|---|\n| 1.5 | x |\n|  | y\\|z |"]
    assert gallery.run_cell(gallery.Cell("code", "len('abc')"), names, tmp_path / "x.py").text == ["```text\n3\n```"]
    with pytest.raises(ZeroDivisionError) as caught:
        gallery.run_cell(gallery.Cell("code", "\n1 / 0", 7), names, tmp_path / "x.py")
    assert caught.traceback[-1].lineno == 7  # counted from 0: the eighth line


def test_example_without_a_cell_or_a_picture_is_refused(tmp_path):
    with pytest.raises(ValueError, match="begins with a cell"):
        gallery.cells("import os\n")
    with pytest.raises(ValueError, match="no comment: 'x = 1'"):
        gallery.cells("# %% [markdown]\n# Text\nx = 1\n")
    (tmp_path / "bare.py").write_text("# %% [markdown]\n# # Title\n\n# %%\n1 + 1\n")
    with pytest.raises(ValueError, match="does not end in a picture"):
        gallery.run_example(tmp_path / "bare.py")
    with pytest.raises(ValueError, match="too long"):
        gallery.table_of(gallery.pd.DataFrame({"n": range(100)}))

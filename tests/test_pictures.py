"""The pictures of the pages are those that their program draws, and each stands on a page."""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
KEPT = sorted(PICTURES.glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.long
def test_kept_pictures_are_those_of_the_program(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    monkeypatch.delitem(sys.modules, "draw_pictures", raising=False)
    import draw_pictures

    drawn = draw_pictures.draw(tmp_path)
    assert sorted(path.name for path in drawn) == [path.name for path in KEPT]
    for path in drawn:
        assert path.read_text() == (PICTURES / path.name).read_text(), f"run tools/draw_pictures.py for {path.name}"


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_picture_is_readable_at_400_pixels_in_both_schemes(path):
    root = ET.parse(path).getroot()
    assert root.get("width") == "400"
    assert root.find(f"{SVG}title").text == root.get("aria-label")
    style = root.find(f"{SVG}style").text
    light, dark = style.split("@media (prefers-color-scheme:dark)")
    colours = r"#[0-9a-f]{3,6}"
    assert re.search(rf"\.ground{{fill:{colours}", light)
    assert re.search(rf"\.ground{{fill:{colours}", dark)
    for text in root.iter(f"{SVG}text"):
        size, x = float(text.get("font-size")), float(text.get("x"))
        assert size >= 12, text.text
        width = len(text.text) * size * 0.56
        left = x - width * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor")]
        assert left >= 0, text.text
        assert left + width <= 400, text.text


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_picture_stands_on_a_page(path):
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(f"pictures/{path.name}" in page.read_text(encoding="utf-8") for page in pages)


CONCEPTS = sorted(path for path in (ROOT / "docs" / "concepts").glob("*.md") if path.stem != "words")


@pytest.mark.parametrize("page", CONCEPTS, ids=lambda path: path.stem)
def test_concept_has_a_picture_and_an_example(page):
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"!\[.+\]\(../pictures/(\w+).svg\)", text) == [page.stem]
    assert ">>> " in text
    assert f"concepts/{page.name}" in (ROOT / "README.md").read_text(encoding="utf-8")

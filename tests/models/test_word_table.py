"""Word tables: the JSON form, records, and shares."""

from __future__ import annotations

import json

import pytest

from riot_ops.models import WordTable
from riot_ops.models.word_table import spam_share


def test_save_and_load(tmp_path):
    path = tmp_path / "words.json"
    table = WordTable({"win": (7, 1), "ü": (0, 2)}, 70, 30)
    table.save(str(path))
    assert WordTable.load(str(path)) == table
    stored = json.loads(path.read_text())
    assert stored["words"]["win"] == {
        "word": "win", "count_bad": 7, "count_good": 1, "r_bad": 0.1, "r_good": 2 / 30,
        "p_spam": pytest.approx(0.6),
    }  # fmt: skip


def test_table_of_records_adds_them_up():
    found = WordTable.of([{"word": w, "count_bad": 1, "count_good": n} for n, w in enumerate(["a", "b", "a", None])])
    assert found == WordTable({"a": (2, 2), "b": (1, 1)}, 1, 3)


def test_spam_share_of_known_and_unknown_words():
    assert spam_share(1, 0, 10, 0) == 0.99
    assert spam_share(0, 1, 0, 10, min_share=0.2) == 0.2
    assert spam_share(0, 0, 5, 5, unknown=0.3) == 0.3
    assert spam_share(3, 1, 10, 10) == pytest.approx(0.6)

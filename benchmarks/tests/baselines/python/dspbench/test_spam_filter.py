"""Baseline of the spam filter in plain Python, against the dataflow."""

from __future__ import annotations

import json

from riot_bench.baselines.python.dspbench.spam_filter import spam_filter as baseline

from riot_ops.dataflows import spam_filter
from riot_ops.models import WordTable
from tests.dataflows.dspbench.test_spam_filter import found, table


def test_baseline_learns_the_same_table(tmp_path):
    learned = [json.dumps({"id": i, "message": m, "spam": s}) for i, m, s in ((1, "win Win é", True), (2, "we", 0))]
    asked = ['{"id": 3, "message": "win we meet"}', "[]", '{"id": "4", "message": "!"}']
    path = str(tmp_path / "table.json")
    options = {"emit_empty": True, "keep_table": True}
    plain = baseline({"training": [t.encode() for t in learned], "analysis": [t.encode() for t in asked]}, **options)
    result = spam_filter(**options).run({"training": table(learned), "analysis": table(asked)})
    assert found(result["results"]) == plain["results"]
    rows = [(r["word"], r["count_bad"], r["count_good"]) for r in result["table"].to_pylist()]
    assert {row for row in rows if any(row[1:])} == set(plain["table"])  # words that were only asked for aside
    WordTable.of(result["table"].to_pylist()).save(path)
    again = baseline({"analysis": [t.encode() for t in asked]}, table=path, training=False, emit_empty=True)
    assert again == {"results": plain["results"]}
    assert plain["results"][0][1] != baseline({"analysis": [asked[0].encode()]}, training=False)["results"][0][1]

"""Programs with Arrow and NumPy."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from riot_bench.baselines.arrow.streambench import BATCH_FUNCTIONS, run_batched
from riot_bench.harness.digest import digest
from riot_bench.harness.validation import plain_results
from riot_bench.suites.streambench.programs import PROGRAMS, final_results

from riot_ops.dataflows import application
from riot_ops.streams import generate

OPTIONS = [
    ("sample", {"share": 0.3, "seed": -4}),
    ("sample", {"share": 0.0}),
    ("sample", {"share": 1.0}),
    ("projection", {"column": 4}),
    ("grep", {"text": "http", "invert": True}),
    ("grep", {"text": "ü"}),
    ("distinct", {"column": 1}),
    ("statistics", {"field": "v6_bytes"}),
    ("wordcount", {}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_arrow_batches_equal_plain_python(name: str, options: dict[str, Any]) -> None:
    odd = ["", "7", "7\tü b  c\t\t", "\t\t\t\t\t", "201309,40,1e3,x, 5 ,-3", "1,2,inf,nan,n/a,.5", " a\tb "]
    source = generate(application(name).inputs["lines"], messages=300, dirt=True)
    texts = odd + [v.as_py().decode() for b in source.read({"start": 0, "end": 300}) for v in b["payload"]]
    texts = [text.replace(".5", "5") for text in texts]  # sums are of whole numbers
    batches = [
        pa.record_batch({"seq": range(a, b), "value": texts[a:b]})
        for a, b in itertools.pairwise((0, 3, 90, len(texts)))
    ]
    found = [
        row
        for one in run_batched(name, batches, **options)
        for row in (one.to_pylist() if isinstance(one, pa.RecordBatch) else [one])
    ]
    rows = plain_results(application(name), {"lines": [text.encode() for text in texts]}, options)
    one = PROGRAMS[name]
    fields = application(name).results[one.stream]
    wanted = final_results(name, [{"seq": 0, **dict(zip(fields, row, strict=True))} for row in rows[one.stream]])
    got = final_results(name, [{**row, "seq": 0} for row in found])
    assert digest(got) == digest(wanted)


def test_no_batches_give_no_results() -> None:
    assert [run_batched(name, []) for name in BATCH_FUNCTIONS] == [[]] * 7

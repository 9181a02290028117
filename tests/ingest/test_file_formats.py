"""Formats of files: the inference of fields from JSON lines."""

from __future__ import annotations

from riot_ops.ingest.file_formats import JSONLinesFormat


def test_json_fields_are_inferred_from_limited_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("riot_ops.ingest.file_formats.BATCH_BYTES", 40)
    path = tmp_path / "large.jsonl"
    path.write_text('{"text": "0123456789", "a": 1}\n{"b": 2, "text": "0123456789"}\n{"c": 3}\n')
    assert JSONLinesFormat().schema(str(path)).names == ["text", "a", "b"]

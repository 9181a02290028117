"""Stores as the plain dicts that they should behave like."""

from __future__ import annotations

from riot_ops.core.errors import RecordError


class Blobs:
    """A blob store as a dict."""

    def __init__(self):
        self.content = {}

    def write(self, name, data, overwrite=True):
        if not overwrite and self.content.get(name, data) != data:
            raise RecordError(name, reason="exists")
        self.content[name] = data

    def read(self, name, max_bytes=None):
        if name not in self.content:
            raise RecordError(name, reason="not_found")
        if max_bytes is not None and len(self.content[name]) > max_bytes:
            raise RecordError(name, reason="too_large")
        return self.content[name]

    def delete(self, name):
        self.content.pop(name, None)

    def list(self, prefix=""):
        return sorted(name for name in self.content if name.startswith(prefix))


class Table:
    """A table as a dict."""

    def __init__(self):
        self.content = {}

    def insert(self, rows):
        for partition, row, values in rows:
            self.content[partition, row] = {name: value for name, value in values.items() if value is not None}

    def get(self, keys):
        return [self.content.get(key) for key in keys]

    def range(self, partition, start, end):
        return [
            (p, row, values)
            for (p, row), values in sorted(self.content.items())
            if p == partition and start <= row < end
        ]

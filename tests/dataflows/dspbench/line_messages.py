"""Line messages as inputs of the applications, and their results, for tests."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.parquet as pq

ORDER = ("seq", "ordinal", "ordinal_2", "ordinal_3")


def messages(texts):
    """Build messages of lines, without event time."""
    return pa.table(
        {
            "event_time": pa.nulls(len(texts), pa.timestamp("us", "UTC")),
            "payload": pa.array([t.encode() for t in texts], pa.binary()),
        }
    )


def rows(table, *fields):
    """Return the message number and these fields of each row, in order."""
    if table is None or not table.num_rows:
        return []
    places = [name for name in ORDER if name in table.schema.names]
    found = table.sort_by([(name, "ascending") for name in places]).to_pylist()
    return [(row["seq"], *(row[name] for name in fields)) for row in found]


def last_updates(rows, key, batch_size):
    """Select the last row of each key and batch from rows that begin with their message number."""
    last = {(row[0] // batch_size, key(row)): row for row in rows}
    return sorted(last.values(), key=lambda row: row[0])


def restarted(flow, texts, cut, folder):
    """Run twice, first with the texts up to a cut; return the streams of both runs by name."""
    for part in (texts[:cut], texts):
        flow.run(messages(part), checkpoint=folder / "checkpoint", out=folder / "out")
    return {
        name: pa.concat_tables(map(pq.read_table, files))
        for name, files in itertools.groupby(sorted((folder / "out").glob("*/*.parquet")), lambda p: p.parent.name)
    }

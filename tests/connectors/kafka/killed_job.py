"""A run that a test kills: from one topic to another, in transactions, with a checkpoint.

usage: killed_job.py SERVERS FROM TO FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import riot_ops as ro
from riot_ops.connectors import KafkaSink, KafkaSource


class Marking(KafkaSink):
    """Notes each commit in a file, for the test."""

    def commit(self, batch_id, messages):
        with open(Path(sys.argv[4]) / "batches", "ab") as file:
            file.write(b".")
        super().commit(batch_id, messages)


def main() -> None:
    servers, start, end, folder = sys.argv[1].split(","), sys.argv[2], sys.argv[3], Path(sys.argv[4])
    source = KafkaSource(servers=servers, topics=start, ending_offsets="latest")
    sink = Marking(servers=servers, topic=end, payload="payload", partition_field="partition", transactional=True)
    flow = ro.Dataflow("copy")
    raw = flow.source("raw", schema=source.schema)
    flow.sink("out", raw)
    flow.run(
        source,
        sinks={"out": sink, "errors": ro.MemorySink()},
        checkpoint=folder / "checkpoint",
        epoch="20ms",
        epoch_rows=100,
        batch_size=20,
    )


if __name__ == "__main__":
    main()

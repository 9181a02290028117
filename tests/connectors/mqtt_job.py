"""A subscriber to be killed: keeps what it reads in Parquet files, with a checkpoint.

usage: mqtt_job.py URL FOLDER MESSAGES QOS
"""

from __future__ import annotations

import sys
from pathlib import Path

import riot_ops as ro
from riot_ops.connectors import MqttSource


def source(url: str, folder: Path, messages: int, qos: int) -> MqttSource:
    return MqttSource(
        url=url, topics=("job/#",), client_id=f"job-{qos}", spool=str(folder / "spool"), qos=qos, messages=messages
    )


def main() -> None:
    url, folder, messages, qos = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    flow = ro.Dataflow("job")
    one = source(url, folder, messages, qos)
    raw = flow.source("raw", schema=one.schema)
    flow.sink("out", raw)
    print("started", flush=True)
    flow.run(one, out=folder / "out", checkpoint=folder / "checkpoint", epoch_s=0.05, batch_size=200, overwrite=False)
    print("done", flush=True)


if __name__ == "__main__":
    main()

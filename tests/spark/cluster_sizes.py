"""What ``riot-ops plan`` predicts beside what a cluster of this computer takes: ``cluster_sizes.py FOLDER PLAN.json``.

Each line is JSON: cores, keys, and predicted and measured CPU per message, messages per second, bytes of the
checkpoint's state, and memory of the executors. It starts clusters of one and of two workers with a core each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import riot_ops as ro
from riot_ops.cli.sizing import DiscardSink
from riot_ops.measure.processes import proportional_set_size
from riot_ops.testing.spark_cluster import SparkCluster

TICKS = os.sysconf("SC_CLK_TCK")
#: Workers of one core, and sensors.
SIZES = ((1, 2000), (2, 2000), (2, 8000))
MESSAGES = 400_000


def cpu_seconds(cluster: SparkCluster) -> float:
    """CPU of all processes on the machines of the workers, and of their ended children."""
    total = 0
    for machine in cluster.machines:
        for pid in machine.pids():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / TICKS


def state_bytes(folder: Path) -> int:
    """Bytes of the newest base of each bucket and step, in Spark's store and outside."""
    return sum(path.stat().st_size for path in (folder / "state").rglob("*") if path.is_file())


def memory_bytes(cluster: SparkCluster) -> int:
    """Memory of the executors and of their Python processes, without Spark's own worker; shared pages by share."""
    pids = {pid for machine in cluster.machines for pid in machine.pids()}
    pids -= {pid for machine in cluster.machines for pid in machine.pids("deploy.worker.Worker")}
    return sum(map(proportional_set_size, pids))


def measure(cluster: SparkCluster, spark, keys: int) -> dict[str, float]:
    flow = ro.dataflows.stats("city")
    found = []
    for n in (MESSAGES // 10, MESSAGES // 4, MESSAGES // 4, MESSAGES):
        checkpoint = cluster.shared / f"{keys}-{len(found)}"
        cpu, began = cpu_seconds(cluster), time.monotonic()
        source = ro.streams.city(sensors=keys, messages=n)
        query = flow.start(spark, source, sinks=DiscardSink(), checkpoint=checkpoint, max_records=n // 2)
        query.wait("10min")
        found.append((n, cpu_seconds(cluster) - cpu, time.monotonic() - began, state_bytes(checkpoint)))
    (n1, cpu1, wall1, _), (n2, cpu2, wall2, stored) = found[-2:]  # before, each machine has compiled
    return {
        "cpu_us": (cpu2 - cpu1) / (n2 - n1) * 1e6,
        "rate": (n2 - n1) / (wall2 - wall1),
        "stored": stored,
        "memory": memory_bytes(cluster),
    }


def main(folder: Path, plan: Path) -> None:
    predicted = json.loads(plan.read_text())["measured"]
    for workers, keys in SIZES:
        with SparkCluster(folder / f"{workers}-{keys}", workers=workers) as cluster:
            spark = cluster.session()
            try:
                measured = measure(cluster, spark, keys)
            finally:
                spark.stop()
        per_key = [
            (step["keys_per_key"] * keys + step["other_keys"]) * step["stored_bytes"] for step in predicted["steps"]
        ]
        held = [
            (step["keys_per_key"] * keys + step["other_keys"]) * step["memory_bytes"] for step in predicted["steps"]
        ]
        executors = workers * (predicted["base_bytes"] + predicted["core_bytes"])  # one core each
        expected = {
            "cpu_us": predicted["cpu_seconds"] * 1e6,
            "rate": workers / predicted["cpu_seconds"],
            "stored": sum(per_key),
            "memory": executors + sum(held) + sum(per_key),
        }
        print(json.dumps({"cores": workers, "keys": keys, "predicted": expected, "measured": measured}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))

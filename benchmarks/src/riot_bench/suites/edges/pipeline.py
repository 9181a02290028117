"""A pipeline from a source to a sink, in process and on one core, against plain Python with bare clients."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.machine import pinned_to_one_core
from riot_bench.harness.requirements import require_extra
from riot_bench.harness.workload import tumbling_stats
from riot_bench.suites.edges.brokers import city_lines
from riot_bench.suites.edges.pair import Pair
from riot_ops.core.source import Offset

__all__ = ["kafka_stats_delta"]

Tables = dict[str, pa.Table]


@contextmanager
def kafka_stats_delta(quick: bool) -> Iterator[Pair]:
    """CITY messages from a topic through STATS into Delta tables, which are on disk at the end of both sides."""
    require_extra("this benchmark", "kafka", "confluent_kafka")
    require_extra("this benchmark", "delta", "deltalake")
    require_extra("this benchmark", "bench", "orjson")
    from riot_bench.baselines.python import kafka
    from riot_bench.baselines.python.stats import stats_to_delta
    from riot_ops.connectors import DeltaSink, KafkaSource
    from riot_ops.testing.services import Tansu

    n = 2000 if quick else 100_000

    class Bounded(KafkaSource):
        """Ends after n messages, as the other side does; this broker's answer for the end is not exact."""

        def finished(self, offset: Offset) -> bool:
            return bool(offset.get("city", {}).get("0", 0) >= n)

    flow, numbers = tumbling_stats(), itertools.count()
    with Tansu() as broker, temporary_folder() as base:
        kafka.create(broker.servers, "city")
        kafka.write(broker.servers, "city", city_lines(n).column("payload").to_pylist())

        def ours() -> tuple[float, object]:
            folder = base / f"ours-{next(numbers)}"
            with pinned_to_one_core():
                start = time.perf_counter()
                source = Bounded(servers=broker.servers, topics="city")
                flow.run(source, sinks=DeltaSink(folder))
                return time.perf_counter() - start, _tables(folder)

        def theirs() -> tuple[float, object]:
            folder = base / f"theirs-{next(numbers)}"
            with pinned_to_one_core():
                start = time.perf_counter()
                stats_to_delta(kafka.payloads(broker.servers, "city", n), folder)
                return time.perf_counter() - start, _tables(folder)

        yield Pair(n, ours, theirs, "confluent-kafka, orjson, dicts and delta-rs; one core each", equal=_same)


def _tables(folder: Path) -> Tables:
    from deltalake import DeltaTable

    found: Tables = {}
    for kind in ("avg", "slr", "dac"):
        rows = pa.table(DeltaTable(folder / kind).to_pyarrow_table())
        found[kind] = rows.select(["seq", "sensor_id", "obs_type", "value"]).sort_by(
            [("seq", "ascending"), ("obs_type", "ascending")]
        )
    return found


def _same(ours: Tables, theirs: Tables) -> bool:
    for kind, a in ours.items():
        b = theirs[kind]
        if a.num_rows != b.num_rows or any(
            a[name].to_pylist() != b[name].to_pylist() for name in ("sensor_id", "obs_type")
        ):
            return False
        # the numbers of messages are offsets times 65,536 on one side
        if (np.asarray(a["seq"]) >> 16).tolist() != b["seq"].to_pylist():
            return False
        if not np.allclose(np.asarray(a["value"]), np.asarray(b["value"]), rtol=1e-9):
            return False
    return True

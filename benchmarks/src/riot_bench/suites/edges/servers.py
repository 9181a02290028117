"""Pairs over HTTP: a server that takes JSON, and InfluxDB's line protocol."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from riot_bench.harness.requirements import require_extra
from riot_bench.suites.edges.pair import Pair
from riot_bench.suites.edges.tables import STREAM, readings, write_batch

__all__ = ["http_sink", "influx_sink"]

#: Records of a request, on both sides.
HTTP_ROWS, INFLUX_ROWS = 1000, 5000


@contextmanager
def http_sink(quick: bool) -> Iterator[Pair]:
    """Until the server has accepted the last request of JSON objects."""
    require_extra("this benchmark", "http", "urllib3")
    require_extra("this benchmark", "bench", "orjson")
    import orjson

    from riot_bench.baselines.python.http_client import keeping_server, post_json, take_bodies
    from riot_ops.connectors import HTTPSink

    n = 5000 if quick else 300_000
    batches, numbers = readings(n), itertools.count()
    with keeping_server() as url:
        sink = HTTPSink(url=url, batch_size=HTTP_ROWS).bind({STREAM: batches[0].schema})
        sink.identify("bench")

        def rows() -> object:
            found = take_bodies(url).replace(b"][", b",")
            return [(row["number"], row["sensor_id"], row["obs_type"], row["value"]) for row in orjson.loads(found)]

        def ours() -> tuple[float, object]:
            return write_batch(sink, next(numbers), batches), rows()

        def theirs() -> tuple[float, object]:
            return post_json(url, batches, HTTP_ROWS), rows()

        yield Pair(n, ours, theirs, f"urllib3 and orjson, {HTTP_ROWS:,} rows in a request", "rows/s")


@contextmanager
def influx_sink(quick: bool) -> Iterator[Pair]:
    """Until the server has accepted the last request of lines."""
    require_extra("this benchmark", "http", "urllib3")
    from riot_bench.baselines.python.http_client import keeping_server, post_lines, take_bodies
    from riot_ops.connectors import InfluxSink

    n = 10_000 if quick else 300_000
    batches, numbers = readings(n), itertools.count()
    with keeping_server() as url:
        tags = ("sensor_id", "obs_type")
        given = InfluxSink(url=url, database="plant", tags=tags, batch_size=INFLUX_ROWS)
        sink = given.bind({STREAM: batches[0].schema})
        sink.identify("bench")

        def points() -> object:
            """Return the parts of each line, in the order of their names: each side has its own."""
            lines = take_bodies(url).decode().splitlines()
            heads = [line.replace(" ", ",").split(",") for line in lines]
            return [(name, sorted(parts[:-1]), int(parts[-1])) for name, *parts in heads]

        def ours() -> tuple[float, object]:
            return write_batch(sink, next(numbers), batches), points()

        def theirs() -> tuple[float, object]:
            return post_lines(url, batches, INFLUX_ROWS), points()

        yield Pair(n, ours, theirs, f"urllib3 and lines made by f-strings, {INFLUX_ROWS:,} in a request", "rows/s")

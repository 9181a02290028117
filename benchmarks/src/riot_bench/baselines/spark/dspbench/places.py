"""Where addresses are, by joins with a table of networks; and what is counted at once."""

from __future__ import annotations

import ipaddress
from typing import Any

from pyspark.sql import functions as f

from riot_ops.tasks.lookup.sample_networks import networks

__all__ = ["kind", "located"]

NUMBER = r"^(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}$"


def located(frame: Any, ip: str = "ip") -> Any:
    """The rows with ``country`` and ``city`` of an address, null where it is in no network of the table.

    The table has prefixes of few lengths, so that there is an equality to join by for each.
    """
    spark = frame.sparkSession
    by_length: dict[int, list[tuple[int, str, str]]] = {}
    for text, _, country, city in networks():
        net = ipaddress.IPv4Network(text)
        number = int(net.network_address) >> (32 - net.prefixlen)
        by_length.setdefault(net.prefixlen, []).append((number, country, city))
    parts = f.split(ip, r"\.")
    whole = sum((parts[i].cast("long") * 256 ** (3 - i) for i in range(1, 4)), parts[0].cast("long") * 256**3)
    frame = frame.withColumn("_number", f.when(f.col(ip).rlike(NUMBER), whole))
    for length, rows in by_length.items():
        names = [f"_{name}_{length}" for name in ("prefix", "country", "city")]
        table = f.broadcast(spark.createDataFrame(rows, f"{names[0]} long, {names[1]} string, {names[2]} string"))
        frame = frame.withColumn("_prefix", f.shiftright("_number", 32 - length))
        frame = frame.join(table, f.col("_prefix") == f.col(names[0]), "left")
    found = [f.coalesce(*(f.col(f"_{name}_{length}") for length in by_length)) for name in ("country", "city")]
    frame = frame.withColumn("country", found[0]).withColumn("city", found[1])
    return frame.drop(*(name for name in frame.columns if name.startswith("_")))


def kind(stream: str, a: Any = None, b: Any = None) -> Any:
    """A key of one of several counts in one aggregation."""
    parts = [(f.lit(None) if part is None else part).cast("string") for part in (a, b)]
    return f.struct(f.lit(stream).alias("stream"), parts[0].alias("a"), parts[1].alias("b"))

"""Location of IP addresses, by joins with a table of networks."""

from __future__ import annotations

import ipaddress
from typing import Any

from pyspark.sql import functions as f

from riot_ops.tables.sample_networks import networks

__all__ = ["with_location"]

NUMBER = r"^(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}$"


def with_location(frame: Any, ip: str = "ip") -> Any:
    """Add ``country`` and ``city`` of an address; null if no network of the table contains it.

    The table has few prefix lengths, and each allows an equi-join.
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

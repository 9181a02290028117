"""Clicks on the pages of a site, as the click analytics of DSPBench reads them."""

from __future__ import annotations

from typing import ClassVar

import pyarrow as pa

from riot_ops.streams.dspbench.weblog import addresses
from riot_ops.streams.parameters import Count
from riot_ops.streams.text_lines import Numbers, TextLineSource, join_cells, zipf_weights

__all__ = ["VisitsSource"]


class VisitsSource(TextLineSource):
    """Clicks as JSON: address, page and client.

    Clients and pages have frequencies by Zipf's law, so that about half of 3,000 clicks are the first of their client
    to their page, and ever fewer later. A client has one address; 93 % of these are in the default table of networks.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    clients : int, >= 1, default 5,000
    pages : int, >= 1, default 200
    dirt : bool, default True
        0.3 % of the lines are bad: no JSON, a list, or without client.

    Shapes and rates
    ----------------
    63 bytes a line.

    Examples
    --------
    >>> source = VisitsSource(messages=2)
    >>> next(source.read({"start": 0, "end": 2}))["payload"][1].as_py()
    b'{"ip": "198.19.82.186", "url": "/page/66", "clientKey": "c3"}'
    """

    stream: ClassVar[str] = "visits"
    domain: ClassVar[str] = "clicks on the pages of a site"

    clients: Count = 5_000
    pages: Count = 200

    def lines(self, numbers: Numbers) -> pa.Array:
        client = self.choices(1, numbers, zipf_weights(self.clients))
        page = self.choices(2, numbers, zipf_weights(self.pages))
        address = addresses(self.clients, self.seed).take(pa.array(client))
        seen = join_cells('{"ip": "', address, '", "url": "/page/', page, separator="")
        lines = join_cells(seen, '", "clientKey": "c', client, '"}', separator="")
        listed = join_cells('["', address, '"]', separator="")
        return self.with_dirt(numbers, lines, 0.003, [seen, listed, join_cells(seen, '"}', separator="")])

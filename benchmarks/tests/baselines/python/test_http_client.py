"""The server of the benchmarks keeps what bare clients send."""

from __future__ import annotations

import json

import pytest
from riot_bench.baselines.python.http_client import keeping_server, post_json, post_lines, take_bodies
from riot_bench.suites.edges.tables import readings


@pytest.mark.integration
def test_bodies_are_kept_in_order_until_they_are_taken():
    with keeping_server() as url:
        assert take_bodies(url) == b""
        post_json(f"{url}/a", readings(5), 2)
        bodies = take_bodies(url).replace(b"][", b",")
        assert [row["number"] for row in json.loads(bodies)] == list(range(5))
        post_lines(url, readings(1), 10)
        line = take_bodies(url).decode()
        assert line.startswith("readings,sensor_id=sensor-0000,obs_type=temperature number=0i,value=2")
        assert line.endswith(" 1700000000000000\n") and take_bodies(url) == b""

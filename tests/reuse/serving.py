"""A manager that serves in this process, and the commands that talk to it."""

from __future__ import annotations

import threading
import time

from typer.testing import CliRunner

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.cli import main as cli
from riot_ops.cli.reuse_server import ReuseServer

SCHEMA = {"device": "string", "value": "double"}


LINES = "".join(f"{'ab'[i % 2]},{i}.5\n" for i in range(40))


def flow(name="mean", window=5):
    made = ro.Dataflow(name)
    stream = made.source("readings", schema=SCHEMA).to(t.MovingAverage(by=("device",), window=window), id="average")
    return made.sink("out", stream)


def written(path, flow):
    path.write_text(flow.to_json(), encoding="utf-8")
    return str(path)


class Serving:
    """Serves a manager in a thread of this process."""

    def __init__(self, folder, **options):
        self.server = ReuseServer(folder, **options)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            self.server.serve()
        finally:
            self.server.close()

    def __enter__(self):
        return self.server

    def __exit__(self, *error):
        self.server.stopping.set()
        self._thread.join(20)


def call(folder, *args, code=0):
    result = CliRunner().invoke(cli.app, ["reuse", *args, "--dir", str(folder)])
    if code == 0:
        assert result.exit_code == 0, (result.output, result.exception)
        return result.output
    assert isinstance(result.exception, ro.RiotError)  # the program turns it into exit code 2
    return str(result.exception)


def until(what, seconds=30):
    limit = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < limit
        time.sleep(0.02)

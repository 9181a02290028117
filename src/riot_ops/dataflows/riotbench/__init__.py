"""The applications of RIoTBench."""

from riot_ops.dataflows.riotbench.etl import etl
from riot_ops.dataflows.riotbench.micro import micro
from riot_ops.dataflows.riotbench.pred import pred
from riot_ops.dataflows.riotbench.stats import stats
from riot_ops.dataflows.riotbench.train import train
from riot_ops.dataflows.riotbench.train_timer import read_ticks, ticks

__all__ = [
    "etl",
    "micro",
    "pred",
    "read_ticks",
    "stats",
    "ticks",
    "train",
]

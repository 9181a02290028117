"""Builders of the applications."""

from riot_ops.dataflows.applications import APPLICATIONS, BUILDERS, RIOTBENCH, Application, application
from riot_ops.dataflows.dspbench.ads_analytics import ads_analytics
from riot_ops.dataflows.dspbench.bargain_index import bargain_index
from riot_ops.dataflows.dspbench.click_analytics import click_analytics
from riot_ops.dataflows.dspbench.fraud_detection import fraud_detection
from riot_ops.dataflows.dspbench.log_processing import log_processing
from riot_ops.dataflows.dspbench.machine_outlier import machine_outlier
from riot_ops.dataflows.dspbench.reinforcement_learner import reinforcement_learner
from riot_ops.dataflows.dspbench.sentiment_analysis import sentiment_analysis
from riot_ops.dataflows.dspbench.smart_grid import smart_grid
from riot_ops.dataflows.dspbench.spam_filter import spam_filter
from riot_ops.dataflows.dspbench.spike_detection import spike_detection
from riot_ops.dataflows.dspbench.traffic_monitoring import traffic_monitoring
from riot_ops.dataflows.dspbench.trending_topics import trending_topics
from riot_ops.dataflows.dspbench.voip_stream import voip_stream
from riot_ops.dataflows.dspbench.word_count import word_count
from riot_ops.dataflows.dspbench.yahoo_streaming import yahoo_streaming
from riot_ops.dataflows.neptune.equipment_monitoring import equipment_monitoring
from riot_ops.dataflows.riotbench.etl import etl
from riot_ops.dataflows.riotbench.micro import micro
from riot_ops.dataflows.riotbench.pred import pred
from riot_ops.dataflows.riotbench.stats import stats
from riot_ops.dataflows.riotbench.ticks import read_ticks, ticks
from riot_ops.dataflows.riotbench.train import train
from riot_ops.dataflows.streambench.distinct import distinct
from riot_ops.dataflows.streambench.grep import grep
from riot_ops.dataflows.streambench.identity import identity
from riot_ops.dataflows.streambench.projection import projection
from riot_ops.dataflows.streambench.sample import sample
from riot_ops.dataflows.streambench.statistics import statistics
from riot_ops.dataflows.streambench.threat import threat
from riot_ops.dataflows.streambench.wordcount import wordcount

__all__ = [
    "APPLICATIONS",
    "BUILDERS",
    "FORMS",
    "RIOTBENCH",
    "Application",
    "ads_analytics",
    "application",
    "bargain_index",
    "click_analytics",
    "distinct",
    "equipment_monitoring",
    "etl",
    "fraud_detection",
    "grep",
    "identity",
    "log_processing",
    "machine_outlier",
    "micro",
    "pred",
    "projection",
    "read_ticks",
    "reinforcement_learner",
    "sample",
    "sentiment_analysis",
    "smart_grid",
    "spam_filter",
    "spike_detection",
    "statistics",
    "stats",
    "threat",
    "ticks",
    "traffic_monitoring",
    "train",
    "trending_topics",
    "voip_stream",
    "word_count",
    "wordcount",
    "yahoo_streaming",
]

#: The forms that an application has, the usual one first.
FORMS: dict[str, tuple[str, ...]] = {"stats": ("paper", "plots"), "pred": ("publish", "paper")}

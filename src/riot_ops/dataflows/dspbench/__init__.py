"""The applications of DSPBench."""

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

__all__ = [
    "ads_analytics",
    "bargain_index",
    "click_analytics",
    "fraud_detection",
    "log_processing",
    "machine_outlier",
    "reinforcement_learner",
    "sentiment_analysis",
    "smart_grid",
    "spam_filter",
    "spike_detection",
    "traffic_monitoring",
    "trending_topics",
    "voip_stream",
    "word_count",
    "yahoo_streaming",
]

"""The applications of four benchmarks, as functions that build their dataflows.

``riot_ops.dataflows.riotbench``, ``dspbench``, ``neptune`` and ``streambench`` have the applications of one benchmark
each. This package offers them all, except those with ambiguous names: ``streambench.statistics``,
``streambench.wordcount`` and ``dspbench.word_count``.
"""

from typing import TYPE_CHECKING

from riot_ops.core.lazy import lazy_names
from riot_ops.task import declare

if TYPE_CHECKING:
    from riot_ops.dataflows import dspbench, neptune, riotbench, streambench
    from riot_ops.dataflows.applications import APPLICATIONS, BUILDERS, FORMS, RIOTBENCH, Application, application
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
    from riot_ops.dataflows.dspbench.yahoo_streaming import yahoo_streaming
    from riot_ops.dataflows.neptune.equipment_monitoring import equipment_monitoring
    from riot_ops.dataflows.riotbench.etl import etl
    from riot_ops.dataflows.riotbench.micro import micro
    from riot_ops.dataflows.riotbench.pred import pred
    from riot_ops.dataflows.riotbench.stats import stats
    from riot_ops.dataflows.riotbench.train import train
    from riot_ops.dataflows.riotbench.train_timer import read_ticks, ticks
    from riot_ops.dataflows.streambench.distinct import distinct
    from riot_ops.dataflows.streambench.grep import grep
    from riot_ops.dataflows.streambench.identity import identity
    from riot_ops.dataflows.streambench.projection import projection
    from riot_ops.dataflows.streambench.sample import sample
    from riot_ops.dataflows.streambench.threat import threat

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
    "dspbench",
    "equipment_monitoring",
    "etl",
    "fraud_detection",
    "grep",
    "identity",
    "log_processing",
    "machine_outlier",
    "micro",
    "neptune",
    "pred",
    "projection",
    "read_ticks",
    "reinforcement_learner",
    "riotbench",
    "sample",
    "sentiment_analysis",
    "smart_grid",
    "spam_filter",
    "spike_detection",
    "stats",
    "streambench",
    "threat",
    "ticks",
    "traffic_monitoring",
    "train",
    "trending_topics",
    "voip_stream",
    "yahoo_streaming",
]

#: The module that defines each name.
_MODULES = {
    "APPLICATIONS": "riot_ops.dataflows.applications",
    "Application": "riot_ops.dataflows.applications",
    "BUILDERS": "riot_ops.dataflows.applications",
    "FORMS": "riot_ops.dataflows.applications",
    "RIOTBENCH": "riot_ops.dataflows.applications",
    "ads_analytics": "riot_ops.dataflows.dspbench",
    "application": "riot_ops.dataflows.applications",
    "bargain_index": "riot_ops.dataflows.dspbench",
    "click_analytics": "riot_ops.dataflows.dspbench",
    "distinct": "riot_ops.dataflows.streambench",
    "dspbench": "riot_ops.dataflows.dspbench",
    "equipment_monitoring": "riot_ops.dataflows.neptune",
    "etl": "riot_ops.dataflows.riotbench",
    "fraud_detection": "riot_ops.dataflows.dspbench",
    "grep": "riot_ops.dataflows.streambench",
    "identity": "riot_ops.dataflows.streambench",
    "log_processing": "riot_ops.dataflows.dspbench",
    "machine_outlier": "riot_ops.dataflows.dspbench",
    "micro": "riot_ops.dataflows.riotbench",
    "neptune": "riot_ops.dataflows.neptune",
    "pred": "riot_ops.dataflows.riotbench",
    "projection": "riot_ops.dataflows.streambench",
    "read_ticks": "riot_ops.dataflows.riotbench",
    "reinforcement_learner": "riot_ops.dataflows.dspbench",
    "riotbench": "riot_ops.dataflows.riotbench",
    "sample": "riot_ops.dataflows.streambench",
    "sentiment_analysis": "riot_ops.dataflows.dspbench",
    "smart_grid": "riot_ops.dataflows.dspbench",
    "spam_filter": "riot_ops.dataflows.dspbench",
    "spike_detection": "riot_ops.dataflows.dspbench",
    "stats": "riot_ops.dataflows.riotbench",
    "streambench": "riot_ops.dataflows.streambench",
    "threat": "riot_ops.dataflows.streambench",
    "ticks": "riot_ops.dataflows.riotbench",
    "traffic_monitoring": "riot_ops.dataflows.dspbench",
    "train": "riot_ops.dataflows.riotbench",
    "trending_topics": "riot_ops.dataflows.dspbench",
    "voip_stream": "riot_ops.dataflows.dspbench",
    "yahoo_streaming": "riot_ops.dataflows.dspbench",
}

#: Code and module of the operators that their packages offer: they are found by name and code like all others.
_OPERATORS = {
    "BagOfWords": ("BOW", "riot_ops.dataflows.dspbench.operators.bag_of_words"),
    "Bandit": ("BND", "riot_ops.dataflows.dspbench.operators.bandit"),
    "BatchOutliers": ("BOL", "riot_ops.dataflows.dspbench.operators.batch_outliers"),
    "BatchSums": ("BSM", "riot_ops.dataflows.dspbench.operators.batch_sums"),
    "BayesScore": ("BAY", "riot_ops.dataflows.dspbench.operators.bayes_score"),
    "BoundedCount": ("BCT", "riot_ops.dataflows.dspbench.operators.bounded_count"),
    "CenterDistance": ("CDT", "riot_ops.dataflows.dspbench.operators.center_distance"),
    "CountSpamWords": ("SPC", "riot_ops.dataflows.dspbench.operators.count_spam_words"),
    "DecayedScores": ("DCS", "riot_ops.dataflows.dspbench.operators.decayed_scores"),
    "DecayingRate": ("DCR", "riot_ops.dataflows.dspbench.operators.decaying_rate"),
    "HistoryMedian": ("HMD", "riot_ops.dataflows.dspbench.operators.history_median"),
    "LabelQuartile": ("QLB", "riot_ops.dataflows.riotbench.operators.label_quartile"),
    "LexiconSentiment": ("LEX", "riot_ops.dataflows.dspbench.operators.lexicon_sentiment"),
    "MarkovScore": ("MKS", "riot_ops.dataflows.dspbench.operators.markov_score"),
    "PairDelay": ("PDL", "riot_ops.dataflows.neptune.operators.pair_delay"),
    "PiViete": ("PI", "riot_ops.dataflows.riotbench.operators.pi_viete"),
    "RunningMedian": ("RMD", "riot_ops.dataflows.dspbench.operators.running_median"),
    "ShareAbove": ("SHA", "riot_ops.dataflows.dspbench.operators.share_above"),
    "SliceMeans": ("SLM", "riot_ops.dataflows.dspbench.operators.slice_means"),
    "SlidingTotals": ("SLT", "riot_ops.dataflows.dspbench.operators.sliding_totals"),
    "SlidingWindow": ("SLW", "riot_ops.dataflows.dspbench.operators.sliding_window"),
    "SyntheticEventTime": ("NUT", "riot_ops.dataflows.dspbench.operators.synthetic_event_time"),
    "TopK": ("TPK", "riot_ops.dataflows.dspbench.operators.top_k"),
    "Trend": ("TRD", "riot_ops.dataflows.neptune.operators.trend"),
    "WeightedAverage": ("WAV", "riot_ops.dataflows.dspbench.operators.weighted_average"),
}

declare(_OPERATORS)
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, _MODULES)

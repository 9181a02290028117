"""Operators that only the applications of DSPBench need, each imported at first use."""

from typing import TYPE_CHECKING

from riot_ops.core.lazy import lazy_names
from riot_ops.core.parameters import snake_case

if TYPE_CHECKING:
    from riot_ops.dataflows.dspbench.operators.bag_of_words import BagOfWords
    from riot_ops.dataflows.dspbench.operators.bandit import Bandit
    from riot_ops.dataflows.dspbench.operators.batch_outliers import BatchOutliers
    from riot_ops.dataflows.dspbench.operators.batch_sums import BatchSums
    from riot_ops.dataflows.dspbench.operators.bayes_score import BayesScore
    from riot_ops.dataflows.dspbench.operators.bounded_count import BoundedCount
    from riot_ops.dataflows.dspbench.operators.center_distance import CenterDistance
    from riot_ops.dataflows.dspbench.operators.count_spam_words import CountSpamWords
    from riot_ops.dataflows.dspbench.operators.decayed_scores import DecayedScores
    from riot_ops.dataflows.dspbench.operators.decaying_rate import DecayingRate
    from riot_ops.dataflows.dspbench.operators.history_median import HistoryMedian
    from riot_ops.dataflows.dspbench.operators.lexicon_sentiment import LexiconSentiment
    from riot_ops.dataflows.dspbench.operators.markov_score import MarkovScore
    from riot_ops.dataflows.dspbench.operators.running_median import RunningMedian
    from riot_ops.dataflows.dspbench.operators.share_above import ShareAbove
    from riot_ops.dataflows.dspbench.operators.slice_means import SliceMeans
    from riot_ops.dataflows.dspbench.operators.sliding_totals import SlidingTotals
    from riot_ops.dataflows.dspbench.operators.sliding_window import SlidingWindow
    from riot_ops.dataflows.dspbench.operators.synthetic_event_time import SyntheticEventTime
    from riot_ops.dataflows.dspbench.operators.top_k import TopK
    from riot_ops.dataflows.dspbench.operators.weighted_average import WeightedAverage

__all__ = [
    "BagOfWords",
    "Bandit",
    "BatchOutliers",
    "BatchSums",
    "BayesScore",
    "BoundedCount",
    "CenterDistance",
    "CountSpamWords",
    "DecayedScores",
    "DecayingRate",
    "HistoryMedian",
    "LexiconSentiment",
    "MarkovScore",
    "RunningMedian",
    "ShareAbove",
    "SliceMeans",
    "SlidingTotals",
    "SlidingWindow",
    "SyntheticEventTime",
    "TopK",
    "WeightedAverage",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {name: f"{__name__}.{snake_case(name)}" for name in __all__})

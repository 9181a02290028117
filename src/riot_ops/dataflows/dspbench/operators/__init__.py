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
    from riot_ops.dataflows.dspbench.operators.center_distance import CenterDistance
    from riot_ops.dataflows.dspbench.operators.count_spam_words import CountSpamWords
    from riot_ops.dataflows.dspbench.operators.decayed_scores import DecayedScores
    from riot_ops.dataflows.dspbench.operators.decaying_rate import DecayingRate
    from riot_ops.dataflows.dspbench.operators.history_median import HistoryMedian
    from riot_ops.dataflows.dspbench.operators.lexicon_sentiment import LexiconSentiment
    from riot_ops.dataflows.dspbench.operators.markov_score import MarkovScore
    from riot_ops.dataflows.dspbench.operators.synthetic_event_time import SyntheticEventTime

__all__ = [
    "BagOfWords",
    "Bandit",
    "BatchOutliers",
    "BatchSums",
    "BayesScore",
    "CenterDistance",
    "CountSpamWords",
    "DecayedScores",
    "DecayingRate",
    "HistoryMedian",
    "LexiconSentiment",
    "MarkovScore",
    "SyntheticEventTime",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {name: f"{__name__}.{snake_case(name)}" for name in __all__})

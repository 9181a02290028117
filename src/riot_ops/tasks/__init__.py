"""The operators: one task per file."""

from riot_ops.task import FilterTask, KeyedTask, StatelessTask, Task, ValueTask, find_task, register
from riot_ops.tasks.filter.bloom_filter import BloomFilterCheck
from riot_ops.tasks.filter.bloom_filter_train import BloomFilterTrain
from riot_ops.tasks.filter.deduplicate import Deduplicate
from riot_ops.tasks.filter.hash_sample import HashSample
from riot_ops.tasks.filter.in_order import InOrder
from riot_ops.tasks.filter.map_match import MapMatch
from riot_ops.tasks.filter.multi_bloom_filter import MultiBloomFilter
from riot_ops.tasks.filter.range_filter import RangeFilter
from riot_ops.tasks.filter.spike_filter import SpikeFilter
from riot_ops.tasks.filter.substring_filter import SubstringFilter
from riot_ops.tasks.filter.value_filter import ValueFilter
from riot_ops.tasks.filter.variation_detector import VariationDetector
from riot_ops.tasks.functions.batch_function import BatchFunction
from riot_ops.tasks.functions.filter_function import FilterFunction
from riot_ops.tasks.functions.flat_map_function import FlatMapFunction
from riot_ops.tasks.functions.keyed_function import KeyedFunction
from riot_ops.tasks.functions.map_function import MapFunction
from riot_ops.tasks.io.blob_download import BlobDownload
from riot_ops.tasks.io.blob_upload import BlobUpload
from riot_ops.tasks.io.local_zip import LocalZip
from riot_ops.tasks.io.mqtt_publish import MqttPublish
from riot_ops.tasks.io.remote_zip import RemoteZip
from riot_ops.tasks.io.sql_insert import SqlInsert
from riot_ops.tasks.io.table_insert import TableInsert
from riot_ops.tasks.io.table_lookup import TableLookup
from riot_ops.tasks.io.table_range import TableRange
from riot_ops.tasks.math.bargain_index import BargainIndex
from riot_ops.tasks.math.no_op import NoOp
from riot_ops.tasks.math.pi_viete import PiViete
from riot_ops.tasks.math.ramp_score import RampScore
from riot_ops.tasks.math.ratio import Ratio
from riot_ops.tasks.math.weighted_sum import WeightedSum
from riot_ops.tasks.merge.as_of_join import AsOfJoin
from riot_ops.tasks.merge.join import Join
from riot_ops.tasks.merge.lookup_join import LookupJoin
from riot_ops.tasks.parse.annotate import Annotate
from riot_ops.tasks.parse.bag_of_words import BagOfWords
from riot_ops.tasks.parse.csv_to_senml import CsvToSenML
from riot_ops.tasks.parse.floor_time import FloorTime
from riot_ops.tasks.parse.geo_lookup import GeoLookup
from riot_ops.tasks.parse.number_time import NumberTime
from riot_ops.tasks.parse.parse_json import ParseJSON
from riot_ops.tasks.parse.parse_lines import ParseLines
from riot_ops.tasks.parse.parse_table import ParseTable
from riot_ops.tasks.parse.project import Project
from riot_ops.tasks.parse.quartile_label import QuartileLabel
from riot_ops.tasks.parse.senml_parse import SenMLParse
from riot_ops.tasks.parse.time_fields import TimeFields
from riot_ops.tasks.parse.tokenize import Tokenize
from riot_ops.tasks.parse.unpivot import Unpivot
from riot_ops.tasks.parse.xml_parse import XMLParse
from riot_ops.tasks.predictive.bandit import Bandit
from riot_ops.tasks.predictive.bayes_score import BayesScore
from riot_ops.tasks.predictive.decision_tree_classify import DecisionTreeClassify
from riot_ops.tasks.predictive.decision_tree_train import DecisionTreeTrain
from riot_ops.tasks.predictive.error_estimate import ErrorEstimate
from riot_ops.tasks.predictive.history_median import HistoryMedian
from riot_ops.tasks.predictive.lexicon_sentiment import LexiconSentiment
from riot_ops.tasks.predictive.linear_regression_predict import LinearRegressionPredict
from riot_ops.tasks.predictive.linear_regression_train import LinearRegressionTrain
from riot_ops.tasks.predictive.markov_score import MarkovScore
from riot_ops.tasks.predictive.neural_network_classify import NeuralNetworkClassify
from riot_ops.tasks.predictive.neural_network_train import NeuralNetworkTrain
from riot_ops.tasks.predictive.sliding_regression import SlidingRegression
from riot_ops.tasks.predictive.spam_counts import SpamCounts
from riot_ops.tasks.statistical.accumulator import Accumulator
from riot_ops.tasks.statistical.batch_outliers import BatchOutliers
from riot_ops.tasks.statistical.batch_sums import BatchSums
from riot_ops.tasks.statistical.block_average import BlockAverage
from riot_ops.tasks.statistical.bounded_count import BoundedCount
from riot_ops.tasks.statistical.center_distance import CenterDistance
from riot_ops.tasks.statistical.changes import Changes
from riot_ops.tasks.statistical.clipped_average import ClippedAverage
from riot_ops.tasks.statistical.decayed_scores import DecayedScores
from riot_ops.tasks.statistical.decaying_rate import DecayingRate
from riot_ops.tasks.statistical.distinct_count import DistinctCount
from riot_ops.tasks.statistical.exponential_average import ExponentialAverage
from riot_ops.tasks.statistical.interpolation import Interpolation
from riot_ops.tasks.statistical.kalman_filter import KalmanFilter
from riot_ops.tasks.statistical.pair_delay import PairDelay
from riot_ops.tasks.statistical.reorder import Reorder
from riot_ops.tasks.statistical.running_count import RunningCount
from riot_ops.tasks.statistical.running_median import RunningMedian
from riot_ops.tasks.statistical.running_summary import RunningSummary
from riot_ops.tasks.statistical.running_totals import RunningTotals
from riot_ops.tasks.statistical.second_order_moment import SecondOrderMoment
from riot_ops.tasks.statistical.share_above import ShareAbove
from riot_ops.tasks.statistical.slice_means import SliceMeans
from riot_ops.tasks.statistical.sliding_sum import SlidingSum
from riot_ops.tasks.statistical.sliding_totals import SlidingTotals
from riot_ops.tasks.statistical.sliding_window import SlidingWindow
from riot_ops.tasks.statistical.top_k import TopK
from riot_ops.tasks.statistical.trend import Trend
from riot_ops.tasks.statistical.variance import Variance
from riot_ops.tasks.statistical.warm_up import WarmUp
from riot_ops.tasks.statistical.weighted_average import WeightedAverage
from riot_ops.tasks.statistical.window import Aggregate, Window
from riot_ops.tasks.visualization.multi_line_plot import MultiLinePlot

__all__ = [
    "Accumulator",
    "Aggregate",
    "Annotate",
    "AsOfJoin",
    "BagOfWords",
    "Bandit",
    "BargainIndex",
    "BatchFunction",
    "BatchOutliers",
    "BatchSums",
    "BayesScore",
    "BlobDownload",
    "BlobUpload",
    "BlockAverage",
    "BloomFilterCheck",
    "BloomFilterTrain",
    "BoundedCount",
    "CenterDistance",
    "Changes",
    "ClippedAverage",
    "CsvToSenML",
    "DecayedScores",
    "DecayingRate",
    "DecisionTreeClassify",
    "DecisionTreeTrain",
    "Deduplicate",
    "DistinctCount",
    "ErrorEstimate",
    "ExponentialAverage",
    "FilterFunction",
    "FilterTask",
    "FlatMapFunction",
    "FloorTime",
    "GeoLookup",
    "HashSample",
    "HistoryMedian",
    "InOrder",
    "Interpolation",
    "Join",
    "KalmanFilter",
    "KeyedFunction",
    "KeyedTask",
    "LexiconSentiment",
    "LinearRegressionPredict",
    "LinearRegressionTrain",
    "LocalZip",
    "LookupJoin",
    "MapFunction",
    "MapMatch",
    "MarkovScore",
    "MqttPublish",
    "MultiBloomFilter",
    "MultiLinePlot",
    "NeuralNetworkClassify",
    "NeuralNetworkTrain",
    "NoOp",
    "NumberTime",
    "PairDelay",
    "ParseJSON",
    "ParseLines",
    "ParseTable",
    "PiViete",
    "Project",
    "QuartileLabel",
    "RampScore",
    "RangeFilter",
    "Ratio",
    "RemoteZip",
    "Reorder",
    "RunningCount",
    "RunningMedian",
    "RunningSummary",
    "RunningTotals",
    "SecondOrderMoment",
    "SenMLParse",
    "ShareAbove",
    "SliceMeans",
    "SlidingRegression",
    "SlidingSum",
    "SlidingTotals",
    "SlidingWindow",
    "SpamCounts",
    "SpikeFilter",
    "SqlInsert",
    "StatelessTask",
    "SubstringFilter",
    "TableInsert",
    "TableLookup",
    "TableRange",
    "Task",
    "TimeFields",
    "Tokenize",
    "TopK",
    "Trend",
    "Unpivot",
    "ValueFilter",
    "ValueTask",
    "Variance",
    "VariationDetector",
    "WarmUp",
    "WeightedAverage",
    "WeightedSum",
    "Window",
    "XMLParse",
    "find_task",
    "register",
]

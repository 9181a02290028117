"""The tasks, one per module, each imported at first use."""

from typing import TYPE_CHECKING

from riot_ops.core.lazy import lazy_names
from riot_ops.task import FilterTask, KeyedTask, StatelessTask, Task, ValueTask, declare, find_task, register

if TYPE_CHECKING:
    from riot_ops.tasks.filter.check_bloom_filter import CheckBloomFilter
    from riot_ops.tasks.filter.deduplicate import Deduplicate
    from riot_ops.tasks.filter.drop_late import DropLate
    from riot_ops.tasks.filter.filter import Filter
    from riot_ops.tasks.filter.range_filter import RangeFilter
    from riot_ops.tasks.filter.sample_by_hash import SampleByHash
    from riot_ops.tasks.filter.train_bloom_filter import TrainBloomFilter
    from riot_ops.tasks.functions.batch_function import BatchFunction
    from riot_ops.tasks.functions.filter_function import FilterFunction
    from riot_ops.tasks.functions.flat_map_function import FlatMapFunction
    from riot_ops.tasks.functions.keyed_function import KeyedFunction
    from riot_ops.tasks.functions.map_function import MapFunction
    from riot_ops.tasks.io.download_blob import DownloadBlob
    from riot_ops.tasks.io.insert_sql import InsertSQL
    from riot_ops.tasks.io.insert_table import InsertTable
    from riot_ops.tasks.io.publish_mqtt import PublishMQTT
    from riot_ops.tasks.io.read_table_range import ReadTableRange
    from riot_ops.tasks.io.upload_blob import UploadBlob
    from riot_ops.tasks.io.zip import Zip
    from riot_ops.tasks.join.as_of_join import AsOfJoin
    from riot_ops.tasks.join.assemble_message import AssembleMessage
    from riot_ops.tasks.join.interval_join import IntervalJoin
    from riot_ops.tasks.lookup.lookup import Lookup
    from riot_ops.tasks.math.compute import Compute
    from riot_ops.tasks.math.counter_increase import CounterIncrease
    from riot_ops.tasks.math.distinct_count import DistinctCount
    from riot_ops.tasks.math.interpolation import Interpolation
    from riot_ops.tasks.math.kalman_filter import KalmanFilter
    from riot_ops.tasks.math.no_op import NoOp
    from riot_ops.tasks.math.second_order_moment import SecondOrderMoment
    from riot_ops.tasks.parse.csv_to_senml import CSVToSenML
    from riot_ops.tasks.parse.parse_access_log import ParseAccessLog
    from riot_ops.tasks.parse.parse_json import ParseJSON
    from riot_ops.tasks.parse.parse_lines import ParseLines
    from riot_ops.tasks.parse.parse_senml import ParseSenML
    from riot_ops.tasks.parse.parse_xml import ParseXML
    from riot_ops.tasks.parse.project import Project
    from riot_ops.tasks.parse.tokenize import Tokenize
    from riot_ops.tasks.parse.unpivot import Unpivot
    from riot_ops.tasks.plot.plot_lines import PlotLines
    from riot_ops.tasks.predict.classify import Classify
    from riot_ops.tasks.predict.estimate_error import EstimateError
    from riot_ops.tasks.predict.predict_linear_regression import PredictLinearRegression
    from riot_ops.tasks.predict.sliding_regression import SlidingRegression
    from riot_ops.tasks.predict.train_decision_tree import TrainDecisionTree
    from riot_ops.tasks.predict.train_linear_regression import TrainLinearRegression
    from riot_ops.tasks.predict.train_neural_network import TrainNeuralNetwork
    from riot_ops.tasks.window.change_detector import ChangeDetector
    from riot_ops.tasks.window.clipped_average import ClippedAverage
    from riot_ops.tasks.window.collect import Collect
    from riot_ops.tasks.window.exponential_average import ExponentialAverage
    from riot_ops.tasks.window.flag_warm_up import FlagWarmUp
    from riot_ops.tasks.window.moving_average import MovingAverage
    from riot_ops.tasks.window.running_count import RunningCount
    from riot_ops.tasks.window.running_summary import RunningSummary
    from riot_ops.tasks.window.running_totals import RunningTotals
    from riot_ops.tasks.window.sliding_sum import SlidingSum
    from riot_ops.tasks.window.sort_by_event_time import SortByEventTime
    from riot_ops.tasks.window.variance import Variance
    from riot_ops.tasks.window.window import Aggregate, Window

#: Code and module of each task.
_TASKS = {
    "AsOfJoin": ("AOJ", "riot_ops.tasks.join.as_of_join"),
    "AssembleMessage": ("JON", "riot_ops.tasks.join.assemble_message"),
    "BatchFunction": ("BFN", "riot_ops.tasks.functions.batch_function"),
    "CSVToSenML": ("C2S", "riot_ops.tasks.parse.csv_to_senml"),
    "ChangeDetector": ("CHG", "riot_ops.tasks.window.change_detector"),
    "CheckBloomFilter": ("BLF", "riot_ops.tasks.filter.check_bloom_filter"),
    "Classify": ("CLS", "riot_ops.tasks.predict.classify"),
    "ClippedAverage": ("CLA", "riot_ops.tasks.window.clipped_average"),
    "Collect": ("ACC", "riot_ops.tasks.window.collect"),
    "Compute": ("CMP", "riot_ops.tasks.math.compute"),
    "CounterIncrease": ("INC", "riot_ops.tasks.math.counter_increase"),
    "Deduplicate": ("DDP", "riot_ops.tasks.filter.deduplicate"),
    "DistinctCount": ("DAC", "riot_ops.tasks.math.distinct_count"),
    "DownloadBlob": ("ABD", "riot_ops.tasks.io.download_blob"),
    "DropLate": ("ORD", "riot_ops.tasks.filter.drop_late"),
    "EstimateError": ("ERR", "riot_ops.tasks.predict.estimate_error"),
    "ExponentialAverage": ("EWM", "riot_ops.tasks.window.exponential_average"),
    "Filter": ("FEX", "riot_ops.tasks.filter.filter"),
    "FilterFunction": ("FLT", "riot_ops.tasks.functions.filter_function"),
    "FlagWarmUp": ("WUP", "riot_ops.tasks.window.flag_warm_up"),
    "FlatMapFunction": ("FLM", "riot_ops.tasks.functions.flat_map_function"),
    "InsertSQL": ("SQI", "riot_ops.tasks.io.insert_sql"),
    "InsertTable": ("ATI", "riot_ops.tasks.io.insert_table"),
    "Interpolation": ("INP", "riot_ops.tasks.math.interpolation"),
    "IntervalJoin": ("IVJ", "riot_ops.tasks.join.interval_join"),
    "KalmanFilter": ("KAL", "riot_ops.tasks.math.kalman_filter"),
    "KeyedFunction": ("KFN", "riot_ops.tasks.functions.keyed_function"),
    "Lookup": ("LKP", "riot_ops.tasks.lookup.lookup"),
    "MapFunction": ("MAP", "riot_ops.tasks.functions.map_function"),
    "MovingAverage": ("AVG", "riot_ops.tasks.window.moving_average"),
    "NoOp": ("NOP", "riot_ops.tasks.math.no_op"),
    "ParseAccessLog": ("PAL", "riot_ops.tasks.parse.parse_access_log"),
    "ParseJSON": ("PJS", "riot_ops.tasks.parse.parse_json"),
    "ParseLines": ("PRS", "riot_ops.tasks.parse.parse_lines"),
    "ParseSenML": ("SML", "riot_ops.tasks.parse.parse_senml"),
    "ParseXML": ("XML", "riot_ops.tasks.parse.parse_xml"),
    "PlotLines": ("PLT", "riot_ops.tasks.plot.plot_lines"),
    "PredictLinearRegression": ("MLR", "riot_ops.tasks.predict.predict_linear_regression"),
    "Project": ("PRJ", "riot_ops.tasks.parse.project"),
    "PublishMQTT": ("MQP", "riot_ops.tasks.io.publish_mqtt"),
    "RangeFilter": ("RGF", "riot_ops.tasks.filter.range_filter"),
    "ReadTableRange": ("ATR", "riot_ops.tasks.io.read_table_range"),
    "RunningCount": ("CNT", "riot_ops.tasks.window.running_count"),
    "RunningSummary": ("RSM", "riot_ops.tasks.window.running_summary"),
    "RunningTotals": ("TOT", "riot_ops.tasks.window.running_totals"),
    "SampleByHash": ("SMP", "riot_ops.tasks.filter.sample_by_hash"),
    "SecondOrderMoment": ("SOM", "riot_ops.tasks.math.second_order_moment"),
    "SlidingRegression": ("SLR", "riot_ops.tasks.predict.sliding_regression"),
    "SlidingSum": ("SSM", "riot_ops.tasks.window.sliding_sum"),
    "SortByEventTime": ("RDR", "riot_ops.tasks.window.sort_by_event_time"),
    "Tokenize": ("TOK", "riot_ops.tasks.parse.tokenize"),
    "TrainBloomFilter": ("BLT", "riot_ops.tasks.filter.train_bloom_filter"),
    "TrainDecisionTree": ("DTT", "riot_ops.tasks.predict.train_decision_tree"),
    "TrainLinearRegression": ("MLT", "riot_ops.tasks.predict.train_linear_regression"),
    "TrainNeuralNetwork": ("NNT", "riot_ops.tasks.predict.train_neural_network"),
    "Unpivot": ("UPV", "riot_ops.tasks.parse.unpivot"),
    "UploadBlob": ("ABU", "riot_ops.tasks.io.upload_blob"),
    "Variance": ("VAR", "riot_ops.tasks.window.variance"),
    "Window": ("WIN", "riot_ops.tasks.window.window"),
    "Zip": ("ZIP", "riot_ops.tasks.io.zip"),
}

#: A step that :class:`IntervalJoin` adds for its streams: found by name and code, and not offered.
_INTERNAL = {"JoinSide": ("JSD", "riot_ops.tasks.join.join_side")}

#: By code, tasks of the benchmarks that are settings of a task: the task, and what the setting does.
PRESETS = {
    "ANN": ("Lookup", "Add the values that a table has for a sensor."),
    "ATQ": ("Lookup", "Add the values of a row of a table in a store."),
    "DTC": ("Classify", "Classify each record with a decision tree."),
    "LZP": ("Zip", "Pack files into zip archives in a folder."),
    "MBL": ("CheckBloomFilter", "Check several fields, each by its own Bloom filter."),
    "RZP": ("Zip", "Pack files into zip archives for a following upload."),
}

__all__ = [
    "PRESETS",
    "Aggregate",
    "AsOfJoin",
    "AssembleMessage",
    "BatchFunction",
    "CSVToSenML",
    "ChangeDetector",
    "CheckBloomFilter",
    "Classify",
    "ClippedAverage",
    "Collect",
    "Compute",
    "CounterIncrease",
    "Deduplicate",
    "DistinctCount",
    "DownloadBlob",
    "DropLate",
    "EstimateError",
    "ExponentialAverage",
    "Filter",
    "FilterFunction",
    "FilterTask",
    "FlagWarmUp",
    "FlatMapFunction",
    "InsertSQL",
    "InsertTable",
    "Interpolation",
    "IntervalJoin",
    "KalmanFilter",
    "KeyedFunction",
    "KeyedTask",
    "Lookup",
    "MapFunction",
    "MovingAverage",
    "NoOp",
    "ParseAccessLog",
    "ParseJSON",
    "ParseLines",
    "ParseSenML",
    "ParseXML",
    "PlotLines",
    "PredictLinearRegression",
    "Project",
    "PublishMQTT",
    "RangeFilter",
    "ReadTableRange",
    "RunningCount",
    "RunningSummary",
    "RunningTotals",
    "SampleByHash",
    "SecondOrderMoment",
    "SlidingRegression",
    "SlidingSum",
    "SortByEventTime",
    "StatelessTask",
    "Task",
    "Tokenize",
    "TrainBloomFilter",
    "TrainDecisionTree",
    "TrainLinearRegression",
    "TrainNeuralNetwork",
    "Unpivot",
    "UploadBlob",
    "ValueTask",
    "Variance",
    "Window",
    "Zip",
    "find_task",
    "register",
]

declare({**_TASKS, **_INTERNAL})
for _code, (_name, _) in PRESETS.items():
    declare({_name: (_code, _TASKS[_name][1])})
if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(
        __name__,
        {"Aggregate": "riot_ops.tasks.window.window", **{name: module for name, (_, module) in _TASKS.items()}},
    )

"""The operators: one task per file."""

from riot_ops.task import KeyedTask, StatelessTask, Task, ValueTask, find_task, register
from riot_ops.tasks.accumulator import Accumulator
from riot_ops.tasks.annotate import Annotate
from riot_ops.tasks.batch_function import BatchFunction
from riot_ops.tasks.blob_download import BlobDownload
from riot_ops.tasks.blob_upload import BlobUpload
from riot_ops.tasks.block_average import BlockAverage
from riot_ops.tasks.bloom_filter import BloomFilterCheck
from riot_ops.tasks.bloom_filter_train import BloomFilterTrain
from riot_ops.tasks.csv_to_senml import CsvToSenML
from riot_ops.tasks.decision_tree_classify import DecisionTreeClassify
from riot_ops.tasks.decision_tree_train import DecisionTreeTrain
from riot_ops.tasks.deduplicate import Deduplicate
from riot_ops.tasks.distinct_count import DistinctCount
from riot_ops.tasks.error_estimate import ErrorEstimate
from riot_ops.tasks.filter_function import FilterFunction
from riot_ops.tasks.flat_map_function import FlatMapFunction
from riot_ops.tasks.interpolation import Interpolation
from riot_ops.tasks.join import Join
from riot_ops.tasks.kalman_filter import KalmanFilter
from riot_ops.tasks.keyed_function import KeyedFunction
from riot_ops.tasks.linear_regression_predict import LinearRegressionPredict
from riot_ops.tasks.linear_regression_train import LinearRegressionTrain
from riot_ops.tasks.local_zip import LocalZip
from riot_ops.tasks.map_function import MapFunction
from riot_ops.tasks.mqtt_publish import MqttPublish
from riot_ops.tasks.multi_bloom_filter import MultiBloomFilter
from riot_ops.tasks.multi_line_plot import MultiLinePlot
from riot_ops.tasks.no_op import NoOp
from riot_ops.tasks.pi_viete import PiViete
from riot_ops.tasks.project import Project
from riot_ops.tasks.quartile_label import QuartileLabel
from riot_ops.tasks.range_filter import RangeFilter
from riot_ops.tasks.remote_zip import RemoteZip
from riot_ops.tasks.second_order_moment import SecondOrderMoment
from riot_ops.tasks.senml_parse import SenMLParse
from riot_ops.tasks.sliding_regression import SlidingRegression
from riot_ops.tasks.sql_insert import SqlInsert
from riot_ops.tasks.table_insert import TableInsert
from riot_ops.tasks.table_lookup import TableLookup
from riot_ops.tasks.table_range import TableRange
from riot_ops.tasks.time_fields import TimeFields
from riot_ops.tasks.variance import Variance
from riot_ops.tasks.xml_parse import XMLParse

__all__ = [
    "Accumulator",
    "Annotate",
    "BatchFunction",
    "BlobDownload",
    "BlobUpload",
    "BlockAverage",
    "BloomFilterCheck",
    "BloomFilterTrain",
    "CsvToSenML",
    "DecisionTreeClassify",
    "DecisionTreeTrain",
    "Deduplicate",
    "DistinctCount",
    "ErrorEstimate",
    "FilterFunction",
    "FlatMapFunction",
    "Interpolation",
    "Join",
    "KalmanFilter",
    "KeyedFunction",
    "KeyedTask",
    "LinearRegressionPredict",
    "LinearRegressionTrain",
    "LocalZip",
    "MapFunction",
    "MqttPublish",
    "MultiBloomFilter",
    "MultiLinePlot",
    "NoOp",
    "PiViete",
    "Project",
    "QuartileLabel",
    "RangeFilter",
    "RemoteZip",
    "SecondOrderMoment",
    "SenMLParse",
    "SlidingRegression",
    "SqlInsert",
    "StatelessTask",
    "TableInsert",
    "TableLookup",
    "TableRange",
    "Task",
    "TimeFields",
    "ValueTask",
    "Variance",
    "XMLParse",
    "find_task",
    "register",
]

"""The operators: one task per file."""

from riot_ops.task import KeyedTask, StatelessTask, Task, find_task, register
from riot_ops.tasks.accumulator import Accumulator
from riot_ops.tasks.block_average import BlockAverage
from riot_ops.tasks.bloom_filter import BloomFilterCheck
from riot_ops.tasks.bloom_filter_train import BloomFilterTrain
from riot_ops.tasks.csv_to_senml import CsvToSenML
from riot_ops.tasks.distinct_count import DistinctCount
from riot_ops.tasks.filter_function import FilterFunction
from riot_ops.tasks.flat_map_function import FlatMapFunction
from riot_ops.tasks.interpolation import Interpolation
from riot_ops.tasks.kalman_filter import KalmanFilter
from riot_ops.tasks.keyed_function import KeyedFunction
from riot_ops.tasks.map_function import MapFunction
from riot_ops.tasks.multi_bloom_filter import MultiBloomFilter
from riot_ops.tasks.multi_line_plot import MultiLinePlot
from riot_ops.tasks.project import Project
from riot_ops.tasks.range_filter import RangeFilter
from riot_ops.tasks.second_order_moment import SecondOrderMoment
from riot_ops.tasks.senml_parse import SenMLParse
from riot_ops.tasks.sliding_regression import SlidingRegression
from riot_ops.tasks.variance import Variance
from riot_ops.tasks.xml_parse import XMLParse

__all__ = [
    "Accumulator",
    "BlockAverage",
    "BloomFilterCheck",
    "BloomFilterTrain",
    "CsvToSenML",
    "DistinctCount",
    "FilterFunction",
    "FlatMapFunction",
    "Interpolation",
    "KalmanFilter",
    "KeyedFunction",
    "KeyedTask",
    "MapFunction",
    "MultiBloomFilter",
    "MultiLinePlot",
    "Project",
    "RangeFilter",
    "SecondOrderMoment",
    "SenMLParse",
    "SlidingRegression",
    "StatelessTask",
    "Task",
    "Variance",
    "XMLParse",
    "find_task",
    "register",
]

"""The seeds of StreamBench, generated, one of text and one of numbers, and traffic with threats."""

from riot_ops.streams.streambench.flows import FlowsSource
from riot_ops.streams.streambench.packets import PacketsSource
from riot_ops.streams.streambench.searches import SearchesSource
from riot_ops.streams.streambench.traffic import TrafficSource

__all__ = ["FlowsSource", "PacketsSource", "SearchesSource", "TrafficSource"]

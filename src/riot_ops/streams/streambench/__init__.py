"""The seeds of StreamBench, generated, one of text and one of numbers, and traffic with threats."""

from collections.abc import Callable

from riot_ops.streams.streambench.flows import FlowsSource
from riot_ops.streams.streambench.packets import PacketsSource
from riot_ops.streams.streambench.searches import SearchesSource
from riot_ops.streams.streambench.traffic import TrafficSource
from riot_ops.streams.text_lines import TextLineSource

__all__ = ["STREAMS", "FlowsSource", "PacketsSource", "SearchesSource", "TrafficSource"]

#: The generated streams of lines by name.
STREAMS: dict[str, Callable[..., TextLineSource]] = {
    kind.stream: kind for kind in (PacketsSource, SearchesSource, TrafficSource, FlowsSource)
}

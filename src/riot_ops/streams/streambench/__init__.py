"""The seeds of StreamBench, generated: one of text and one of numbers."""

from collections.abc import Callable

from riot_ops.streams.streambench.packets import PacketsSource
from riot_ops.streams.streambench.searches import SearchesSource
from riot_ops.streams.wire import WireSource

__all__ = ["STREAMS", "PacketsSource", "SearchesSource"]

#: The generated streams of lines by name.
STREAMS: dict[str, Callable[..., WireSource]] = {kind.stream: kind for kind in (PacketsSource, SearchesSource)}

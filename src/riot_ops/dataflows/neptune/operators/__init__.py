"""Operators that only the applications of Neptune need, each imported at first use."""

from typing import TYPE_CHECKING

from riot_ops.core.lazy import lazy_names
from riot_ops.core.parameters import snake_case

if TYPE_CHECKING:
    from riot_ops.dataflows.neptune.operators.pair_delay import PairDelay
    from riot_ops.dataflows.neptune.operators.trend import Trend

__all__ = [
    "PairDelay",
    "Trend",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(__name__, {name: f"{__name__}.{snake_case(name)}" for name in __all__})

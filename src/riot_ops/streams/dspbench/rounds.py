"""Events and rewards of actions, as the reinforcement learner of DSPBench reads them."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from riot_ops.streams.text_lines import Numbers, TextLineSource, join_cells, normals

__all__ = ["EarningsSource", "RoundsSource"]

ACTIONS = ("page1", "page2", "page3")
#: Mean and deviation of the reward of each action.
MEANS, DEVIATIONS = np.array([30.0, 60.0, 80.0]), np.array([12.0, 30.0, 10.0])


class RoundsSource(TextLineSource):
    """Events: a session and the number of its round, which counts up from 1, such as ``s020941,42``.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    dirt : bool, default True
        0.4 % of the lines lack the round, or have a word for it.

    Shapes and rates
    ----------------
    About 13 bytes a line.

    Examples
    --------
    >>> next(RoundsSource(messages=2).read({"start": 0, "end": 2}))["payload"].to_pylist()
    [b's313600,1', b's906278,2']
    """

    stream: ClassVar[str] = "rounds"
    domain: ClassVar[str] = "events that ask for an action"

    def lines(self, numbers: Numbers) -> pa.Array:
        session = (self.random_words(1, numbers) % np.uint64(1_000_000)).astype(np.int64)
        digits = pc.utf8_lpad(pa.array(session).cast(pa.string()), width=6, padding="0")
        sessions = pc.binary_join_element_wise("s", digits, "")
        lines = join_cells(sessions, numbers + 1)
        return self.with_dirt(numbers, lines, 0.004, [sessions, join_cells(sessions, "first")])


class EarningsSource(TextLineSource):
    """Rewards: an action and its reward, such as ``page3,81``: whole normal numbers that are not below 0.

    The means of the three actions are 30, 60 and 80, their deviations 12, 30 and 10.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    dirt : bool, default True
        0.6 % of the lines lack the number, have a word for it, or an unknown action.

    Shapes and rates
    ----------------
    8 bytes a line.

    Examples
    --------
    >>> next(EarningsSource(messages=2).read({"start": 0, "end": 2}))["payload"].to_pylist()
    [b'page1,12', b'page1,20']
    """

    stream: ClassVar[str] = "earnings"
    domain: ClassVar[str] = "what actions earned"

    def lines(self, numbers: Numbers) -> pa.Array:
        action = self.choices(1, numbers, [1, 1, 1])
        earned = MEANS[action] + DEVIATIONS[action] * normals(self.seed, 2, numbers)
        names = pa.array(ACTIONS).take(pa.array(action))
        lines = join_cells(names, np.maximum(0, np.trunc(earned)).astype(np.int64))
        return self.with_dirt(numbers, lines, 0.006, [names, join_cells(names, "much"), "page9,5"])

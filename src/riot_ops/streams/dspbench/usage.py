"""Loads of the machines of a cluster, as the machine outlier of DSPBench reads them."""

from __future__ import annotations

import functools
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.checks import check_count
from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.parameters import Share
from riot_ops.streams.text_lines import Numbers, TextLineSource, format_decimals, join_cells, normals

__all__ = ["UsageSource"]

#: A machine reports once a minute; the cluster's load swings within a day.
PERIOD = 60
DAY = 86_400 / PERIOD
#: Number of reports of a cycle of a machine, and the first and last of an incident among them.
CYCLE, BEGIN, END = 40, 10, 30
#: First time in seconds, as in the original.
FIRST = 386_640


class UsageSource(TextLineSource):
    """Loads in the format of the Alibaba cluster trace: machine, seconds, percent of processor and memory, five more.

    All machines report at the same times. The load of the cluster swings within a day; machines differ from it by some
    percent, always and at random. Of every 40 minutes one machine is overloaded from the tenth to the thirtieth, each
    time another.

    Parameters
    ----------
    messages : int or None, default None
        Number of lines; None: without end.
    seed : int, default 0
    machines : int, >= 2, default 50
    late : float, 0 to 1, default 0.002
        Share of the lines whose time is that of the previous report.
    dirt : bool, default True
        0.3 % of the lines are bad: they lack cells, or have no number for a load.

    Shapes and rates
    ----------------
    40 bytes a line.

    Examples
    --------
    >>> source = UsageSource(messages=2)
    >>> next(source.read({"start": 0, "end": 2}))["payload"][1].as_py()
    b'm_1,386640,34.8,56.4,,,41.78,33.37,4'
    """

    stream: ClassVar[str] = "usage"
    domain: ClassVar[str] = "loads of machines in a cluster"
    line_time: ClassVar[LineTime | None] = LineTime(r"(?P<before>[^,]*,)(?P<time>\d+)(?P<after>,.*)", "s")
    start_ms = FIRST * 1000

    machines: Annotated[int, functools.partial(check_count, 2)] = 50
    late: Share = 0.002

    @property
    def gap_ms(self) -> float:  # type: ignore[override]
        return PERIOD * 1000 / self.machines

    def lines(self, numbers: Numbers) -> pa.Array:
        step, machine = np.divmod(numbers, self.machines)
        cycle, within = np.divmod(step, CYCLE)
        faulty = (self.random_words(1, cycle) % np.uint64(self.machines)).astype(np.int64)
        overloaded = (machine == faulty) & (within >= BEGIN) & (within < END)
        common = 10 * np.sin(2 * np.pi * step / DAY) + 2 * normals(self.seed, 2, step)
        loads = []
        for use, level in ((3, 35.0), (5, 60.0)):
            own = 3 * normals(self.seed, use, machine) + normals(self.seed, use + 1, numbers)
            loads.append(np.clip(np.where(overloaded, 95 + own / 4, level + common + own), 0.0, 100.0))
        late = self.uniforms(7, numbers) < self.late
        time = FIRST + PERIOD * (step - late)
        head = join_cells(join_cells("m_", machine, separator=""), time)
        traffic = [
            format_decimals(level + 3 * normals(self.seed, use, numbers), 2) for use, level in ((8, 43.0), (9, 33.0))
        ]
        disk = (self.random_words(10, numbers) % np.uint64(10)).astype(np.int64)
        rest = [format_decimals(loads[1], 1), "", "", *traffic, disk]
        lines = join_cells(head, format_decimals(loads[0], 1), *rest)
        return self.with_dirt(numbers, lines, 0.003, [head, join_cells(head, "NaN%", *rest)])

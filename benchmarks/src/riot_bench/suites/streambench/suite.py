"""StreamBench: seven programs in all their forms, and its suites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from riot_bench.harness.data import needs
from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.measure import Measure
from riot_bench.suites.streambench.durability import FULL, check_rates, durability
from riot_bench.suites.streambench.faults import faults
from riot_bench.suites.streambench.forms import PROGRAMS
from riot_bench.suites.streambench.knobs import knobs
from riot_bench.suites.streambench.performance import performance
from riot_bench.suites.streambench.published import published
from riot_bench.suites.streambench.recipients import recipients
from riot_bench.suites.streambench.saturation import saturation
from riot_ops.core.errors import ConfigError, did_you_mean

__all__ = ["EXPERIMENTS", "measures"]

#: The suites by name: each takes whether it is quick, which programs are named, and by how much the records are more.
SUITES: Mapping[str, Callable[..., Iterator[Measure]]] = {
    "performance": performance,
    "saturation": saturation,
    "recipients": recipients,
    "faults": faults,
    "durability": durability,
    "knobs": knobs,
}
#: Programs of suites that have not all of them.
ONLY: Mapping[str, tuple[str, ...]] = {"durability": ("wordcount",)}


def measures(
    quick: bool = False,
    *,
    suite: str | None = None,
    program: Sequence[str] = (),
    scale: float = 1.0,
    rate: Sequence[float] = (),
    seconds: float | None = None,
) -> Iterator[Measure]:
    """The suite.

    Parameters
    ----------
    suite : str, optional
        One of :data:`SUITES`; by default all of them.
    program : sequence of str, optional
        The programs; by default all that a suite has. Where no suite is named, one that has none of them is left out.
    scale : float, > 0, default 1
        Times the records: 50 is what the paper had.
    rate : sequence of float, > 0, optional
        Of durability: records per minute of each query, by default 10,000 and 200,000; times the scale at least 6.
    seconds : float, > 0, optional
        Of durability: for how long, by default half an hour, in the quick form two minutes.
    """
    needs("this benchmark", "bench", "orjson", "psutil")
    if suite is not None and suite not in SUITES:
        raise ConfigError(f"--suite must be one of {', '.join(SUITES)}, got {suite!r}{did_you_mean(suite, SUITES)}")
    known_there = ONLY.get(suite or "", program)
    for name in program:
        if name not in PROGRAMS:
            known = ", ".join(PROGRAMS)
            raise ConfigError(f"--program must be one of {known}, got {name!r}{did_you_mean(name, PROGRAMS)}")
        if name not in known_there:
            raise ConfigError(f"--program must be {' or '.join(known_there)} in the suite {suite}, got {name!r}")
    if not 0 < scale < float("inf"):
        raise ConfigError(f"--scale must be a finite number > 0, got {scale}")
    for name, numbers in (("rate", rate), ("seconds", () if seconds is None else (seconds,))):
        if numbers and suite != "durability":
            raise ConfigError(f"--{name} needs --suite durability, got {suite!r}")
        for number in numbers:
            if not 0 < number < float("inf"):
                raise ConfigError(f"--{name} must be a finite number > 0, got {number}")
    if suite in (None, "durability") and (not program or "wordcount" in program):
        check_rates(rate or FULL.rates, scale)
    own = {"rate": rate, "seconds": seconds}
    for name, run in SUITES.items() if suite is None else [(suite, SUITES[suite])]:
        for one in run(quick, program, scale, **(own if name == "durability" else {})):
            yield one if one.published is not None else replace(one, published=published(one.measure))


def _experiment(name: str, title: str, about: str, seconds: tuple[float, float], *figures: Figure) -> Experiment:
    run = partial(measures, suite=name)
    return Experiment(f"streambench/{name}", title, run, about, figures, seconds, published=published)


#: The suites as the report shows them.
EXPERIMENTS = (
    _experiment(
        "performance",
        "StreamBench: performance",
        "Seven programs, each in all its forms, over lines that are there before the run begins and are taken as fast "
        "as possible. All forms of a program read the same numbered files, and a digest of their results is equal "
        "before any figure is told. The paper had 5 to 50 million records: on Spark Identity was more than 2.5 times "
        "as fast as word count, in a later one four times, and latency about a second, whatever the scale, but that of "
        "statistics five times that of identity.",
        (160, 1900),
        Figure(
            "streambench-forms",
            "StreamBench: forms of each program",
            r"streambench/(?P<x>[a-z]+)/(?P<series>[a-z]+)/1x/throughput",
            "program",
            "records/s",
            log="y",
        ),
        Figure(
            "streambench-scales",
            "StreamBench: packed programs by scale",
            r"streambench/(?P<series>[a-z]+)/packed/(?P<x>\d+)x/throughput",
            "scale, times 100,000 records",
            "records/s",
            "line",
            "xy",
        ),
        Figure(
            "streambench-between",
            "StreamBench: packed programs against one another",
            r"streambench/between/(?P<series>[a-z]+-vs-[a-z]+)/(?P<x>\d+)x",
            "scale, times 100,000 records",
            "ratio",
            "line",
            "x",
        ),
        Figure(
            "streambench-latency",
            "StreamBench: latency of packed programs by scale",
            r"streambench/(?P<series>[a-z]+)/packed/(?P<x>\d+)x/latency",
            "scale, times 100,000 records",
            "ms",
            "line",
            "xy",
        ),
        Figure(
            "streambench-processor",
            "StreamBench: processor time of each form",
            r"streambench/(?P<x>[a-z]+)/(?P<series>[a-z]+)/1x/processor",
            "program",
            "µs/record",
            log="y",
        ),
        Figure(
            "streambench-ratios",
            "StreamBench: packed against Spark's own forms",
            r"streambench/(?P<x>[a-z]+)/(?P<series>(?:packed|expressions)-vs-[a-z]+)",
            "program",
            "ratio",
            log="y",
        ),
    ),
    _experiment(
        "saturation",
        "StreamBench: saturation",
        "How much is too much: lines that are there beforehand, all of them in one micro-batch, twice and four times "
        "as many until one takes longer than its limit; and lines at a steady rate, higher and higher until "
        "micro-batches no longer keep up. Then by halves, to a tenth. The paper's Spark was saturated by 50 million "
        "records of statistics.",
        (70, 1240),
        Figure(
            "streambench-saturation",
            "StreamBench: the most lines of a micro-batch",
            r"streambench/saturation/(?P<x>[a-z]+)/(?P<series>[a-z]+)/volume",
            "program",
            "records",
            log="y",
        ),
    ),
    _experiment(
        "recipients",
        "StreamBench: recipients",
        "The source is read by one task, by half as many as there are partitions, and by as many; the packed form "
        "runs the steps without state in those tasks. On the paper's five nodes two recipients brought 1.8 times the "
        "throughput of one, and five 2.15 times that of two.",
        (72, 160),
        Figure(
            "streambench-recipients",
            "StreamBench: throughput by recipients",
            r"streambench/recipients/(?P<series>[a-z]+)/(?P<x>\d+)of\d+/throughput",
            "tasks that read",
            "records/s",
            "line",
        ),
    ),
    _experiment(
        "faults",
        "StreamBench: faults",
        "A worker of Spark's own standalone cluster is killed half way. TPF is the throughput of that run by the mean "
        "of those without failure on all workers and on one less, LPF the same of the latency; results are held "
        "against those in process. The paper found on Spark a TPF from 0.9 to 1.17, and an LPF of about 1.",
        (70, 1620),
        Figure(
            "streambench-faults",
            "StreamBench: penalty of a lost worker",
            r"streambench/faults/(?P<x>[a-z]+)/(?P<series>tpf|lpf)",
            "program",
            "ratio",
        ),
    ),
    _experiment(
        "durability",
        "StreamBench: durability",
        "Word count at two steady rates, in two queries of one session. Every ten seconds a mark is in the stream, "
        "whose count must be there within thirty: the share of marks for which it is. The paper ran for two days, and "
        "found 100 % at both rates.",
        (132, 1860),
        Figure(
            "streambench-durability",
            "StreamBench: availability",
            r"streambench/durability/(?P<x>[\d.]+)/availability",
            "records per minute",
            "%",
        ),
    ),
    _experiment(
        "knobs",
        "StreamBench: knobs",
        "One setting of a run on Spark after the other, from where all others stand in the middle, with packed word "
        "count; the effect is that of the last setting against the first. Records per micro-batch, partitions, size "
        "of a block, compression and state are over lines that are there beforehand, the trigger at a steady rate. "
        "Stores of state are compared with Spark's own expressions, pickles and Arrow with functions per record. "
        "Trigger, records and partitions are combined besides, in the full form.",
        (112, 1600),
        Figure(
            "streambench-knobs-throughput",
            "StreamBench: throughput by setting",
            r"streambench/knobs/(?P<x>(?!trigger)[a-z]+/\w+)/throughput",
            "setting",
            "records/s",
        ),
        Figure(
            "streambench-knobs-latency",
            "StreamBench: 95th percentile of latency by setting",
            r"streambench/knobs/(?P<x>[a-z]+/[\w.]+)/latency-p95",
            "setting",
            "ms",
            log="y",
        ),
        Figure(
            "streambench-factorial",
            "StreamBench: throughput by trigger, records of a micro-batch and partitions",
            r"streambench/knobs/factorial/(?P<series>[a-z]+)/(?P<x>[\w.]+s-\d+-\d+)/throughput",
            "trigger, records, partitions",
            "records/s",
        ),
    ),
)

"""StreamBench: seven programs in all implementations, and its suites."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from riot_bench.harness.experiment import Experiment, Figure
from riot_bench.harness.measure import Measure
from riot_bench.harness.requirements import require_extra
from riot_bench.suites.streambench.durability import FULL, check_rates, durability
from riot_bench.suites.streambench.faults import faults
from riot_bench.suites.streambench.paper import paper_value
from riot_bench.suites.streambench.performance import performance
from riot_bench.suites.streambench.programs import PROGRAMS
from riot_bench.suites.streambench.recipients import recipients
from riot_bench.suites.streambench.saturation import saturation
from riot_bench.suites.streambench.tuning import tuning
from riot_ops.core.errors import ConfigError, did_you_mean

__all__ = ["EXPERIMENTS", "measures"]

#: Suites by name; each is called with ``quick``, the named programs and the scale.
SUITES: Mapping[str, Callable[..., Iterator[Measure]]] = {
    "performance": performance,
    "saturation": saturation,
    "recipients": recipients,
    "faults": faults,
    "durability": durability,
    "knobs": tuning,
}
#: Programs of suites that do not have all.
SUITE_PROGRAMS: Mapping[str, tuple[str, ...]] = {"durability": ("wordcount",)}


def measures(
    quick: bool = False,
    *,
    suite: str | None = None,
    program: Sequence[str] = (),
    scale: float = 1.0,
    rate: Sequence[float] = (),
    seconds: float | None = None,
) -> Iterator[Measure]:
    """Run the suite.

    Parameters
    ----------
    quick : bool, default False
    suite : str, optional
        One of :data:`SUITES`; by default all.
    program : sequence of str, optional
        Programs; by default all of each suite. Without ``suite``, suites without any of them are left out.
    scale : float, > 0, default 1
        Factor of the number of records; 50 is the paper's size.
    rate : sequence of float, > 0, optional
        Durability only: records per minute of each query, by default 10,000 and 200,000; times the scale at least 6.
    seconds : float, > 0, optional
        Durability only: duration, by default 1800, in the quick form 120.
    """
    require_extra("this benchmark", "bench", "orjson", "psutil")
    if suite is not None and suite not in SUITES:
        raise ConfigError(f"--suite must be one of {', '.join(SUITES)}, got {suite!r}{did_you_mean(suite, SUITES)}")
    known_there = SUITE_PROGRAMS.get(suite or "", program)
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
            yield one if one.published is not None else replace(one, published=paper_value(one.measure))


def _experiment(name: str, title: str, about: str, seconds: tuple[float, float], *figures: Figure) -> Experiment:
    run = partial(measures, suite=name)
    return Experiment(f"streambench/{name}", title, run, about, figures, seconds, published=paper_value)


#: The suites as the report shows them.
EXPERIMENTS = (
    _experiment(
        "performance",
        "StreamBench: performance",
        "Seven programs, each in all implementations, over lines that exist before the run and are read as fast as "
        "possible. All implementations of a program read the same numbered files, and digests of their results are "
        "compared before any measurement. The paper had 5 to 50 million records: on Spark, identity was more than 2.5 "
        "times as fast as word count (four times in a later paper), and latency was about a second at all scales; that "
        "of statistics was five times that of identity.",
        (160, 1900),
        Figure(
            "streambench-forms",
            "StreamBench: implementations of each program",
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
            "StreamBench: ratios between packed programs",
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
            "StreamBench: CPU time of each implementation",
            r"streambench/(?P<x>[a-z]+)/(?P<series>[a-z]+)/1x/processor",
            "program",
            "µs/record",
            log="y",
        ),
        Figure(
            "streambench-ratios",
            "StreamBench: packed against Spark's own implementations",
            r"streambench/(?P<x>[a-z]+)/(?P<series>(?:packed|expressions|frames)-vs-[a-z]+)",
            "program",
            "ratio",
            log="y",
        ),
    ),
    _experiment(
        "saturation",
        "StreamBench: saturation",
        "The largest volume and the highest rate that a program sustains. Existing lines are processed in one "
        "micro-batch, with growing volume until it takes longer than the limit; lines at a steady rate, with growing "
        "rate until micro-batches no longer keep up. Then the interval is bisected, to a tenth. In the paper, "
        "Spark was "
        "saturated by 50 million records of statistics.",
        (70, 1240),
        Figure(
            "streambench-saturation",
            "StreamBench: largest micro-batch",
            r"streambench/saturation/(?P<x>[a-z]+)/(?P<series>[a-z]+)/volume",
            "program",
            "records",
            log="y",
        ),
    ),
    _experiment(
        "recipients",
        "StreamBench: recipients",
        "The source is read by one task, by half as many tasks as there are partitions, and by as many; the packed "
        "implementation runs stateless steps in these tasks. On the paper's five nodes, two recipients had 1.8 times "
        "the throughput of one, and five 2.15 times that of two.",
        (72, 160),
        Figure(
            "streambench-recipients",
            "StreamBench: throughput by recipients",
            r"streambench/recipients/(?P<series>[a-z]+)/(?P<x>\d+)of\d+/throughput",
            "reading tasks",
            "records/s",
            "line",
        ),
    ),
    _experiment(
        "faults",
        "StreamBench: faults",
        "A worker of a Spark standalone cluster is killed half way. TPF is the throughput of that run divided by the "
        "mean of the runs without failure on all workers and on one less; LPF is the same for the latency. Results are "
        "compared with those in process. The paper found a TPF from 0.9 to 1.17 and an LPF of about 1 on Spark.",
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
        "Word count at two steady rates, in two queries of one session. Every ten seconds the stream has a mark, whose "
        "count must be emitted within thirty seconds; availability is the share of marks for which it is. The "
        "paper ran "
        "for two days and found 100 % at both rates.",
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
        "One setting of a run on Spark at a time, with default values of all others, for packed word count; the effect "
        "is that of the last setting against the first. Records per micro-batch, partitions, block size, compression "
        "and state are measured over existing lines, the trigger at a steady rate. State stores are compared with "
        "Spark's own expressions, pickles and Arrow with functions per record. The full form also combines trigger, "
        "records and partitions.",
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

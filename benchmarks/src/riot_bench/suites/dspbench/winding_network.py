"""Traffic monitoring on a network of winding roads, on which the index of roads matters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from riot_bench.baselines.spark.dspbench.baseline import Baseline
from riot_bench.harness.folders import temporary_folder
from riot_bench.harness.input_lines import InputLines
from riot_bench.harness.measure import Measure
from riot_bench.suites.dspbench.spark_comparison import SparkSizes, find_baseline, side_by_side_measures
from riot_ops.models import winding_roads

__all__ = ["WindingNetwork", "winding_network", "winding_spark_measures"]


@dataclass(frozen=True)
class WindingNetwork:
    """The file of a network of winding roads.

    Attributes
    ----------
    roads : Path
    segments : int
    """

    #: Options of the stream whose taxis drive along these roads.
    stream_options: ClassVar[Mapping[str, Any]] = {"network": "winding"}
    roads: Path
    segments: int

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Parameters of the application, on either side."""
        return {"roads": str(self.roads)}

    def renamed(self, found: Iterable[Measure]) -> Iterator[Measure]:
        """Name measures of traffic monitoring for this network."""
        for measure in found:
            name = measure.measure.replace("dspbench/tm/", "dspbench/tm/winding-roads/")
            yield replace(measure, measure=name, against=f"{measure.against}; {self.segments:,} segments")


@contextmanager
def winding_network() -> Iterator[WindingNetwork]:
    """Write 240 roads with 28,800 segments to a file; the default network has 24 straight roads."""
    network = winding_roads()
    rows = ["road_id,seq,lon,lat"]
    for road, points in network.lines:
        rows += [f"{network.ids[road]},{i},{lon!r},{lat!r}" for i, (lon, lat) in enumerate(points.tolist())]
    with temporary_folder() as base:
        path = base / "roads.csv"
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
        yield WindingNetwork(path, sum(len(points) - 1 for _, points in network.lines))


def winding_spark_measures(spark: Any, data: InputLines, sizes: SparkSizes) -> Iterator[Measure]:
    """Compare traffic monitoring with plain PySpark as on the straight roads, over lines of these roads.

    Raises
    ------
    RiotError
        The results differ.
    """
    with winding_network() as network:
        yield from network.renamed(side_by_side_measures(spark, data, sizes, *network_baseline(network)))


def network_baseline(network: WindingNetwork) -> tuple[Baseline, Any]:
    """Return the description and the function of traffic monitoring in plain PySpark on a network."""
    found = find_baseline("traffic_monitoring")
    assert found is not None
    given, build = found
    both = replace(given, parameters=network.parameters, stream_options=network.stream_options)
    return both, partial(build, **network.parameters)

"""What PRED and TRAIN learn on each stream."""

from __future__ import annotations

from dataclasses import dataclass

from riot_ops import tasks as t
from riot_ops.core.schema import stream_schema
from riot_ops.dataflow import Stream

__all__ = ["LEARNING", "MODELS_TOPIC", "Learning", "rows"]

#: Topic on which the names of new models are published, by the kind of model.
MODELS_TOPIC = "models/{stream}/{kind}"


@dataclass(frozen=True)
class Learning:
    """The regression's inputs and target; the tree classifies all of them by the quarter of the target."""

    inputs: tuple[str, ...]
    target: str
    #: Fields that are derived from the time.
    time_fields: tuple[str, ...] = ()

    @property
    def features(self) -> tuple[str, ...]:
        """What the decision tree reads."""
        return (*self.inputs, self.target)

    @property
    def parsed(self) -> tuple[str, ...]:
        """The fields that messages bring."""
        return tuple(f for f in self.features if f not in self.time_fields)


LEARNING = {
    "city": Learning(("temperature", "humidity", "light", "dust"), "airquality_raw"),
    "taxi": Learning(("trip_time_in_secs", "trip_distance"), "fare_amount"),
    "fit": Learning(tuple(f"acc_{part}_{axis}" for part in ("ankle", "arm", "chest") for axis in "xyz"), "ecg_lead_1"),
    # the originals have nothing to predict consumption from but the time
    "grid": Learning(("hour_sin", "hour_cos", "weekend"), "energyconsumed", ("hour_sin", "hour_cos", "weekend")),
}


def rows(source: Stream, stream: str) -> Stream:
    """The messages of a stream as rows with all features."""
    learning = LEARNING[stream_schema(stream).name]
    parsed = source.shuffle().to(t.ParseSenML(schema=stream, fields=learning.parsed, layout="wide"), id="parse")
    return parsed.to(t.TimeFields(fields=learning.time_fields), id="time") if learning.time_fields else parsed

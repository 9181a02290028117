"""Feature sets: the inputs and targets of PRED and TRAIN for each stream."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from riot_ops import tasks as t
from riot_ops.core.schema import stream_schema
from riot_ops.dataflow import Stream

__all__ = ["FEATURE_SETS", "MODELS_TOPIC", "FeatureSet", "feature_rows"]

#: Topic on which TRAIN publishes the names of new models, by the kind of model.
MODELS_TOPIC = "models/{stream}/{kind}"


@dataclass(frozen=True)
class FeatureSet:
    """Inputs and target of the regression; the decision tree reads both and predicts the quartile of the target."""

    inputs: tuple[str, ...]
    target: str
    #: Inputs that are derived from the event time, with their expressions.
    time_fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def features(self) -> tuple[str, ...]:
        """Fields that the decision tree reads."""
        return (*self.inputs, self.target)

    @property
    def parsed(self) -> tuple[str, ...]:
        """Features that are fields of the messages."""
        return tuple(f for f in self.features if f not in self.time_fields)


_ANGLE = f"time_of_day(event_time) / duration('1h') * {math.pi / 12!r}"
#: The time of day without an edge at midnight, and 1.0 on Saturday and Sunday.
DAY_AND_WEEK = {
    "hour_sin": f"sin({_ANGLE})",
    "hour_cos": f"cos({_ANGLE})",
    "weekend": "floor(weekday(event_time) / 5)",
}

FEATURE_SETS = {
    "city": FeatureSet(("temperature", "humidity", "light", "dust"), "airquality_raw"),
    "taxi": FeatureSet(("trip_time_in_secs", "trip_distance"), "fare_amount"),
    "fit": FeatureSet(
        tuple(f"acc_{part}_{axis}" for part in ("ankle", "arm", "chest") for axis in "xyz"), "ecg_lead_1"
    ),
    # the benchmark's messages have nothing but the time to predict consumption from
    "grid": FeatureSet(tuple(DAY_AND_WEEK), "energyconsumed", DAY_AND_WEEK),
}


def feature_rows(source: Stream, stream: str) -> Stream:
    """Build the steps that parse the messages of a stream into rows with all features."""
    learning = FEATURE_SETS[stream_schema(stream).name]
    parsed = source.shuffle().to(t.ParseSenML(schema=stream, fields=learning.parsed, layout="wide"), id="parse")
    return parsed.to(t.Compute(learning.time_fields), id="time") if learning.time_fields else parsed

"""Rejected records in the summary of a run: counts and warnings."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.measure.metrics import Summary
from riot_ops.task import StatelessTask, next_ordinal, with_next_ordinal


def line(i):
    """Write a message with two readings."""
    readings = '{"n":"source","sv":"s1"},{"n":"temperature","v":20.5},{"n":"humidity","v":50}'
    return f'{i},{{"e":[{readings}],"bt":1422748800000}}'.encode()


def parse(lines, spark=None, **options):
    flow = ro.Dataflow("parsed")
    parsed = flow.source("city").to(t.ParseSenML(schema="city"), id="parse")
    flow.sink("out", parsed, parsed.to(t.KalmanFilter(by=("sensor_id", "obs_type")), id="smooth"))
    records = [{"payload": one, "event_time": None} for one in lines]
    if spark is not None:
        query = flow.start(spark, records, **options)
        query.wait()
        return query
    return flow.run(records, **options)


def warned(caplog):
    return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "rejected" in r.getMessage()]


def test_step_without_accepted_records_is_named(caplog):
    summary = parse([b"sensor,time,value", b"a,1,2.0", b"b,2,3.0"]).summary
    assert summary.steps == {"city": (3, 0), "parse": (3, 3)}
    text = "the step 'parse' rejected 3 of 3 records (malformed 3): see the stream errors"
    assert summary.warnings() == warned(caplog) == [text]


@pytest.mark.parametrize(("bad", "warns"), [(4, False), (5, False), (6, True)])
def test_warning_needs_more_than_half_of_the_records(caplog, bad, warns):
    lines = [b"nonsense"] * bad + [line(i) for i in range(10 - bad)]
    summary = parse(lines).summary
    assert summary.steps["parse"] == (10, bad)
    assert summary.steps["smooth"] == (summary.rows["parse"], 0), "a step reads the output of the step before it"
    assert bool(warned(caplog)) == bool(summary.warnings()) == warns


@dataclass(frozen=True, kw_only=True)
class Halves(StatelessTask):
    """Splits a record into two; rejects a negative half."""

    def expands(self):
        return True

    def output_schema(self, schema):
        return with_next_ordinal(schema)

    def apply(self, batch, rejects):
        rows, kept = batch.to_pylist(), []
        for i, row in enumerate(rows):
            for place, half in enumerate((row["a"], row["b"])):
                if half < 0:
                    rejects.reject(batch, np.array([i]), "negative", "a half is negative")
                else:
                    kept.append(row | {next_ordinal(row): place})
        return pa.RecordBatch.from_pylist(kept, schema=self.output_schema(batch.schema))


def test_partly_accepted_record_does_not_count_as_rejected():
    flow = ro.Dataflow("halves")
    once = flow.source("rows", schema={"a": "double", "b": "double"}).to(Halves(), id="once")
    flow.sink("out", once.to(Halves(), id="twice"))
    pairs = [(1, 1), (1, -1), (-1, 1), (-1, -1), (-1, -1), (1, 1)]
    summary = flow.run([{"a": float(a), "b": float(b)} for a, b in pairs]).summary
    assert summary.rows["errors"] == 6 + 2, "each rejected half counts as an error"
    # one half of the second and of the third record remains, and loses a half in the second step
    assert summary.steps == {"rows": (6, 0), "once": (6, 2), "twice": (6, 0)}


def test_long_run_warns_once_and_before_its_end(caplog):
    summary = Summary()
    summary.count({"errors": 999}, {"parse: malformed": 999}, {"parse": (999, 999)})
    summary.warn(ended=False)
    assert not warned(caplog)
    summary.count({"errors": 1}, {"parse: malformed": 1}, {"parse": (1, 1)})
    summary.warn(ended=False)
    assert len(warned(caplog)) == 1
    summary.warn(ended=True)
    assert len(warned(caplog)) == 1


def test_short_run_warns_at_its_end(caplog):
    summary = Summary()
    summary.count({"errors": 1}, {"parse: malformed": 1}, {"parse": (1, 1)})
    summary.warn(ended=True)
    assert len(warned(caplog)) == 1


def test_counts_of_several_epochs_add_up():
    lines = [b"nonsense" if i % 4 == 0 else line(i) for i in range(40)]
    summary = parse(lines, batch_size=4, epoch_rows=8).summary
    assert summary.steps["parse"] == (40, 10)
    assert summary.batches == 10


@pytest.mark.spark
def test_both_runners_count_the_same(spark, caplog):
    lines = [b"nonsense" if i % 5 else line(i) for i in range(40)]
    local = parse(lines).summary
    caplog.clear()
    query = parse(lines, spark=spark, max_records=16)
    assert query.summary.steps == local.steps
    assert local.steps["parse"] == (40, 32)
    assert local.steps["smooth"] == (local.rows["parse"], 0)
    assert warned(caplog) == local.warnings()

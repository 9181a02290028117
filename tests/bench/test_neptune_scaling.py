"""Neptune's senders and jobs: what they tell together is right, and what they lose is noticed."""

from __future__ import annotations

import io
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from riot_ops.bench import neptune, neptune_scaling
from riot_ops.bench.neptune_equipment import monitored, write_readings
from riot_ops.bench.neptune_scaling import senders
from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import RiotError
from riot_ops.dataflows import equipment_monitoring
from riot_ops.streams.dspbench.equipment import EquipmentSource


@pytest.mark.slow
def test_senders_and_jobs():
    assert senders(2, 0.1) > 0
    found = {m.measure: m for m in neptune_scaling.relays_at_once((1, 2), 1, 0.1)}
    assert found["neptune/jobs/relay/2"].value > 0
    assert found["neptune/jobs/relay/lost"].met is True
    found = {m.measure: m for m in neptune_scaling.equipment_at_once((1, 2), 1, 3000)}
    assert found["neptune/jobs/equipment/2"].value > 0
    assert found["neptune/jobs/equipment/lost"].met is True


def test_a_job_monitors_all_readings_of_the_file(tmp_path):
    path = write_readings(tmp_path / "readings.arrow", 30_000)
    found = monitored(path, Buffering())
    source = EquipmentSource(messages=30_000, seed=1, dirt=False)
    result = equipment_monitoring().run(source)
    assert found["messages"] == 30_000
    assert found["rows"] == {name: result[name].num_rows for name in ("monitor", "delays", "alarms")}
    assert found["rows"]["delays"] > 5
    assert monitored(path, Buffering(), 500)["messages"] == 500


def of_equipment(n, lost=0):
    """What jobs tell: the first takes a second, the next two, and so on; the last leaves something out."""
    told = [{"messages": 1000, "rows": {"delays": 5, "alarms": 1}, "seconds": 1.0 + i} for i in range(n)]
    told[-1] = {**told[-1], "messages": 1000 - lost, "rows": {"delays": 5 - lost}} if lost else told[-1]
    return told


def test_jobs_that_monitor_equipment_count_until_the_last_is_done(monkeypatch):
    monkeypatch.setattr(neptune_scaling, "jobs", lambda kind, n, path: of_equipment(n))
    found = {m.measure: m for m in neptune_scaling.equipment_at_once((1, 2, 4), 3, 1000)}
    at = "neptune/jobs/equipment"
    assert [found[f"{at}/{n}"].values for n in (1, 2, 4)] == [(1000,) * 3, (1000,) * 3, (1000,) * 3]
    assert [found[f"{at}/{n}"].published for n in (1, 2, 4)] == [300_000, None, None]
    assert found[f"{at}/2/fairness"].value == pytest.approx(1500**2 / (2 * (1000**2 + 500**2)))
    assert f"{at}/1/fairness" not in found
    assert found[f"{at}/lost"].met is True
    shown = [point for one in neptune.EXPERIMENTS for f in one.figures for point in f.points(found.values())]
    assert [(series, x) for series, x, _ in shown] == [("equipment", x) for x in ("1", "2", "4", "2", "4")]
    monkeypatch.setattr(neptune_scaling, "jobs", lambda kind, n, path: of_equipment(n, lost=n - 1))
    *_, lost = neptune_scaling.equipment_at_once((1, 2), 1, 1000)
    assert (lost.value, lost.met) == (1 + 1 + 1, False)  # a reading, a delay, an alarm


def test_relays_at_once_count_together(monkeypatch):
    told = [{"rate": 100.0, "lost": 0, "disorder": 0}, {"rate": 50.0, "lost": 2, "disorder": 1}]
    monkeypatch.setattr(neptune_scaling, "jobs", lambda kind, n, *_: told[:n])
    found = {m.measure.removeprefix("neptune/jobs/relay/"): m for m in neptune_scaling.relays_at_once((1, 2), 2, 0.1)}
    assert (found["1"].values, found["2"].values) == ((100.0, 100.0), (150.0, 150.0))
    assert (found["1"].published, found["2"].published) == (2e6, None)
    assert found["2/fairness"].value == pytest.approx(0.9)
    assert (found["lost"].value, found["lost"].met) == (6, False)


def test_a_job_that_does_not_start_or_end_is_an_error(monkeypatch):
    for word, text in (("", "did not start"), ("ready\n", "did not end")):

        @contextmanager
        def stage(*_, word=word):
            yield SimpleNamespace(stdin=io.StringIO(), stdout=io.StringIO(word))

        monkeypatch.setattr(neptune_scaling, "stage", stage)
        with pytest.raises(RiotError, match=text):
            neptune_scaling.jobs("equipment-job", 2, "readings")

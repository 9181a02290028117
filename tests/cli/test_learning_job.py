"""``riot-ops run learn``: TRAIN and PRED at the same time."""

import io
import itertools

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from riot_ops.cli import learning_job
from riot_ops.cli.learning_job import LearningJob
from riot_ops.core.errors import ConfigError
from riot_ops.models import ModelStore
from tests.drawn_images import decode, shows

MESSAGES = 3000


def run(tmp_path, monkeypatch, **options):
    monkeypatch.setitem(learning_job.SPAN_INTERVAL_S, "local", 0.6)
    console = Console(file=io.StringIO(), width=150)
    job = LearningJob(
        name="learn", stream="taxi", messages=MESSAGES, sensors=20, runner="local", out=tmp_path / "out", **options
    )
    job.run(console)
    return job, console.file.getvalue()


@pytest.mark.long
@pytest.mark.parametrize("servers", [False, True], ids=["files", "servers"])
def test_pred_switches_to_models_trained_while_it_runs(tmp_path, monkeypatch, servers):
    job, text = run(tmp_path, monkeypatch, servers=servers)
    rows = pq.read_table(sorted((job.out / "publish_error").glob("*.parquet"))).sort_by("seq")
    assert rows["seq"].to_pylist() == list(range(0, 2 * MESSAGES, 2)), "a gap, or a message twice"
    models = rows["model"].to_pylist()
    changes = [models[0], *(b for a, b in itertools.pairwise(models) if a != b)]
    assert changes == sorted(set(models)), "each model follows an older one, and none is used again"
    assert len(changes) >= 2, "how many are in time depends on the load of the machine"
    if not servers:  # the servers' stores no longer exist
        assert set(models) <= set(ModelStore.open(job.out / "models").names("MLR", "TAXI"))
    assert job.summary.errors == 0
    assert "0 messages without a prediction, 0 models used after their successor" in text
    assert all(name in text for name in changes)
    pixels = decode(job.out / "learn.png")
    assert shows(pixels, "#2563eb") and shows(pixels, "#dc2626"), "a colour for each model"


@pytest.mark.parametrize("pace", [{"speed": 1000.0}, {"curve": "city"}])
def test_pace_by_event_time_is_refused(pace):
    with pytest.raises(ConfigError, match="--rate, not --speed or --curve"):
        LearningJob(name="learn", **pace)

"""``riot-ops run --curve``: the pace of a stream's own week."""

import time

import pytest
from typer.testing import CliRunner

from riot_ops.cli import main as cli
from riot_ops.cli.job import Job
from riot_ops.cli.micro_job import MicroJob
from riot_ops.core.errors import ConfigError
from riot_ops.ingest.pace import PacedSource
from riot_ops.streams import CitySource, ReplaySource, write


def due_after(job, seconds):
    """Messages that are due so many seconds after the first one."""
    source = job.source(paced=True)
    assert isinstance(source, PacedSource)
    now = [0.0]
    source.clock = lambda: now[0]
    offset = source.latest(source.initial())
    now[0] = seconds
    end = source.latest(offset)
    return source.count(source.initial(), end)


@pytest.mark.parametrize(
    ("options", "seconds", "messages"),
    [
        ({"curve": "city"}, 100, 640_000),
        ({"curve": "taxi"}, 86.4 + 3 * 3.6 + 1, (2640 * 86.4) + 1.9e4),  # a day, and a night's beginning
        ({"curve": "fit"}, 10, 5000),
        ({"curve": "fit", "speed": 3.0}, 10, 15_000),
        ({"curve": "city", "speed": 500.0}, 100, 320_000),
    ],
)
def test_messages_are_due_along_the_curve(options, seconds, messages):
    for job in (Job(name="stats", messages=10**7, **options), MicroJob(name="micro", messages=10**7, **options)):
        assert due_after(job, seconds) == pytest.approx(messages, rel=0.03)


def test_a_file_is_replayed_along_the_curve(tmp_path):
    path = tmp_path / "city.csv"
    write(CitySource(20, messages=900), path)
    job = Job(name="stats", input=path, curve="fit")
    assert isinstance(job.source(paced=False), ReplaySource)
    assert due_after(job, 0.5) in (250, 251)


@pytest.mark.long
def test_the_command_takes_it(tmp_path):
    begun = time.monotonic()
    options = ("--runner", "local", "--stream", "fit", "--sensors", "2", "--messages", "500", "--no-plot")
    result = CliRunner().invoke(cli.app, ["run", "stats", *options, "--curve", "fit", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert time.monotonic() - begun > 499 / 500


def test_misuse_is_refused():
    with pytest.raises(ConfigError, match=r"no generated stream 'citty'.*did you mean \"city\""):
        Job(name="stats", curve="citty")
    with pytest.raises(ConfigError, match="--curve city and --rate 5 both set the pace"):
        Job(name="stats", curve="city", rate=5.0)

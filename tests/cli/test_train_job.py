"""``riot-ops run train``: time spans, timer files and pace."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from riot_ops import streams
from riot_ops.cli import main as cli
from riot_ops.cli.job import Job
from riot_ops.cli.train_job import TrainJob
from riot_ops.core.errors import ConfigError
from riot_ops.models import ModelStore

HOUR, DAY = 3_600_000, 86_400_000
#: Time of the first reading.
FIRST = 1_358_101_800_000


@pytest.fixture
def trips(tmp_path):
    """Generate taxi readings on four days, 50 per day, one every ten seconds."""
    path = tmp_path / "trips.csv"
    source = streams.generate("taxi", 4, messages=200, seed=3)
    start = source.initial()
    (split,) = source.splits(start, source.latest(start), 1)
    lines = [bytes(p) for b in source.read(split) for p in b.column("payload").to_pylist()]
    path.write_bytes(b"".join(_at(line, FIRST + i // 50 * DAY + i % 50 * 10_000) for i, line in enumerate(lines)))
    return path


def _at(line, ms):
    """Shift a message to another time."""
    time, _, message = line.rstrip(b"\n").partition(b",")
    return b"%d,%b\n" % (ms, message.replace(time, b"%d" % ms))


def train(tmp_path, trips, *options):
    """Return start and end of the models' spans, and the output of the command."""
    out = tmp_path / "out"
    given = ["run", "train", "--stream", "taxi", "--runner", "local", "--input", str(trips), "--out", str(out)]
    result = CliRunner().invoke(cli.app, [*given, *options])
    assert result.exit_code == 0, f"{result.output}{result.exception}"
    names = [name for f in (out / "publish_mlr").glob("*.parquet") for name in pq.read_table(f)["model"].to_pylist()]
    models = [ModelStore.open(str(out / "models")).load(name) for name in names]
    return sorted((m.start_ms - FIRST, m.end_ms - FIRST) for m in models), result.output


@pytest.mark.long
def test_spans_divide_the_readings_equally(tmp_path, trips):
    spans, _ = train(tmp_path, trips, "--spans", "2")
    length = 3 * DAY + 490_000 + 1
    assert spans == [(0, length // 2), (length // 2, length)]


def test_benchmark_spans_cover_864_seconds_of_each_day(tmp_path, trips):
    spans, _ = train(tmp_path, trips, "--ticks", "benchmark", "--spans", "2")
    assert spans == [(0, 864_000), (DAY, DAY + 864_000)], "864 s of each day"


def test_start_moves_the_benchmark_spans(tmp_path, trips):
    spans, output = train(tmp_path, trips, "--ticks", "benchmark", "--start", str(FIRST + DAY - 1000))
    assert spans == [(n * DAY - 1000, n * DAY + 863_000) for n in (1, 2, 3)]
    assert "7 messages" in output, "as many as in the benchmark, four of them without readings"


def test_timer_file_gives_the_spans(tmp_path, trips):
    timer = tmp_path / "timer.csv"
    timer.write_text(f"msgId,timestamp,rowstart,rowend\n1,10,{FIRST},{FIRST + HOUR}\n3,12,{FIRST},{FIRST + 2 * DAY}\n")
    spans, _ = train(tmp_path, trips, "--ticks", str(timer))
    assert spans == [(0, HOUR), (0, 2 * DAY)]


@pytest.mark.long
@pytest.mark.parametrize(("pace", "least"), [(("--speed", "2"), 1.0), (("--rate", "0.8"), 1.25)])
def test_ticks_keep_their_pace(tmp_path, trips, pace, least):
    timer = tmp_path / "timer.csv"
    timer.write_text(f"1,10,{FIRST},{FIRST + HOUR}\n2,12,{FIRST},{FIRST + 2 * DAY}\n")
    _, output = train(tmp_path, trips, "--ticks", str(timer), *pace)
    assert float(output.partition("2 messages in ")[2].split()[0]) >= least


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({"start": 5}, "--start needs --ticks benchmark"),
        ({"ticks": "none.csv"}, "the ticks none.csv cannot be read"),
    ],
)
def test_misuse_of_train_is_refused(options, error_text):
    with pytest.raises(ConfigError, match=error_text):
        TrainJob("train", runner="local", **options)


def test_timer_file_refuses_a_number_of_spans(tmp_path):
    (tmp_path / "timer.csv").write_text("1,10,0,5\n")
    with pytest.raises(ConfigError, match=r"--spans 3: the file .* has its own number of spans"):
        TrainJob("train", runner="local", ticks=str(tmp_path / "timer.csv"), spans=3)


@pytest.mark.long
@pytest.mark.parametrize(("option", "value"), [("ticks", "benchmark"), ("spans", "3"), ("start", "7")])
def test_run_continues_only_with_the_same_ticks(tmp_path, trips, option, value):
    given = {"checkpoint": str(tmp_path / "checkpoint")} | ({"ticks": "benchmark"} if option == "start" else {})
    words = [word for name, one in given.items() for word in (f"--{name}", one)]
    train(tmp_path, trips, *words)
    with pytest.raises(AssertionError, match=f"holds a run with {option} None"):
        train(tmp_path, trips, *words, f"--{option}", value)


@pytest.mark.parametrize("option", ["ticks", "spans", "start"])
def test_other_applications_take_no_ticks(option):
    with pytest.raises(ConfigError, match=f"--{option} is for train, got stats"):
        Job("stats", runner="local", **{option: 1})

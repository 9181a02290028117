"""The catalogue of streams, its command, and STATS over each of them."""

import json
import pickle
import sys

import numpy as np
import pytest

from riot_ops import dataflows, streams
from riot_ops.cli import main as cli
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import RAW, SCHEMAS
from riot_ops.core.sink import MemorySink
from riot_ops.ingest import rates
from riot_ops.streams import CATALOG
from riot_ops.streams.catalog import LINES as STREAMS
from tests import samples
from tests.drawn_images import decode
from tests.streams.records import table


@pytest.fixture
def command(monkeypatch, capsys):
    """Run the command; return its exit code and output."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["riot-ops", *arguments])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return stopped.value.code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_has_a_generator(name):
    schema = SCHEMAS[name]
    assert CATALOG[name].schema is schema
    rows = table(CATALOG[name].generator(7, messages=2000, format="wide", dirt=False))
    assert rows.num_rows == 2000
    assert set(schema.columns) <= {*rows.schema.names, schema.time_field}
    assert rows["seq"].to_pylist() == list(range(2000))
    times = rows["event_time"].to_pylist()
    assert times == sorted(times)
    for field, (low, high) in schema.bounds.items():
        inside = [low <= v <= high for v in rows[field].to_pylist()]
        assert np.mean(inside) > 0.5, f"most values of {field} are outside of its valid range"


@pytest.mark.parametrize("name", [*CATALOG, *STREAMS])
def test_records_of_a_stream_are_determined_by_its_seed(name):
    first, again, other = (table(streams.generate(name, messages=300, seed=seed)) for seed in (5, 5, 6))
    assert first.equals(again)
    assert not first.equals(other)
    assert first.schema == RAW
    assert first["seq"].to_pylist() == list(range(300))


@pytest.mark.parametrize(("name", "seconds"), [("fit", 0.02), ("grid", 1800)])
def test_every_sensor_reports_once_per_period(name, seconds):
    rows = table(CATALOG[name].generator(7, messages=70, format="wide"))
    times = {}
    for sensor, time in zip(rows[SCHEMAS[name].id_field].to_pylist(), rows["event_time"].to_pylist(), strict=True):
        times.setdefault(sensor, []).append(time.timestamp())
    assert len(times) == 7
    for own in times.values():
        assert np.diff(own) == pytest.approx([seconds] * 9, abs=1e-6)


@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.parametrize("form", ["senml", "csv"])
def test_messages_have_the_stated_size(name, form):
    sizes = [len(p) for p in table(streams.generate(name, messages=5000, format=form))["payload"].to_pylist()]
    stated = getattr(CATALOG[name], f"{form}_bytes")
    assert np.mean(sizes) == pytest.approx(stated, rel=0.005)


@pytest.mark.parametrize("name", CATALOG)
def test_csv_columns_are_those_of_the_schema(name):
    schema = SCHEMAS[name]
    lines, wide = (table(streams.generate(name, 50, messages=500, format=f)).to_pylist() for f in ("csv", "wide"))
    for line, row in zip(lines, wide, strict=True):
        for column, text in zip(schema.columns, line["payload"].decode().split(","), strict=True):
            if column == schema.time_field:
                assert int(text) == round(row["event_time"].timestamp() * 1000)
            elif text == "null" or isinstance(row[column], str):
                assert row[column] == (None if text == "null" else text)
            else:
                assert row[column] == float(text)


# sizes of the paper (100 and 191 bytes as CSV) and of the samples (the others)
@pytest.mark.parametrize(
    ("name", "senml", "csv", "within"),
    [("city", 366.8, 84.8, 0.01), ("taxi", 856.5, 185.5, 0.01), ("fit", 1215.7, 214.7, 0.01)],
)
def test_sizes_equal_the_specification(name, senml, csv, within):
    entry = CATALOG[name]
    assert entry.senml_bytes - 14 == pytest.approx(senml, rel=within)  # without the time in front
    assert entry.csv_bytes == pytest.approx(csv, rel=within)


@pytest.mark.long
@pytest.mark.parametrize(("name", "peak"), [("city", 7000), ("taxi", 4000), ("fit", 500), ("grid", 10_000)])
def test_peak_rates_equal_the_specification(name, peak):
    rate = CATALOG[name].describe()["rate"]
    assert rate["max"] == pytest.approx(peak, rel=0.1)  # 5 % noise about the evening's maximum in TAXI
    half = CATALOG[name].describe(rate["speed"] / 2)["rate"]
    assert half["mean"] == pytest.approx(rate["mean"] / 2, abs=0.001)
    assert half["messages"] == rate["messages"]


@pytest.mark.parametrize(
    ("name", "speed", "figures"),
    [
        # the generator's number of sensors and pace, from the specification; sizes as measured above
        ("city", 1000, ("sensors", 90, 381, 85)),
        ("taxi", 1000, ("taxis", 20_355, 870, 185)),
        ("fit", 1, ("subjects", 10, 1228, 214)),
        ("grid", 1000, ("meters", 6000, 126, 24)),
    ],
)
def test_described_rates_and_gaps_equal_those_of_the_curve(name, speed, figures, monkeypatch):
    monkeypatch.setattr("riot_ops.streams.catalog.MAX_GAPS", 30_000)
    description = CATALOG[name].describe()
    curve = getattr(rates, name)(speed=speed)
    assert (description["parameter"], description["sensors"], *description["bytes"].values()) == figures
    rate = curve.rates
    assert description["rate"] == {
        "speed": speed,
        "mean": pytest.approx(rate.mean(), abs=0.0006),
        "std": pytest.approx(rate.std(), abs=0.0006),
        "min": pytest.approx(rate.min(), abs=0.0006),
        "max": pytest.approx(rate.max(), abs=0.0006),
        "seconds": pytest.approx(rate.size * curve.step, abs=0.0006),
        "messages": round(rate.sum() * curve.step),
    }
    numbers = np.arange(min(30_000, description["rate"]["messages"] + 1)) + 1e-6
    edges = curve.step * np.arange(2 * rate.size + 1)  # the first message of the second week is due, too
    due = np.interp(numbers, np.concatenate([[0.0], np.cumsum(np.tile(rate, 2)) * curve.step]), edges)
    gaps = np.sort(np.diff(due)) * 1000
    wanted = {"mean": gaps.mean(), "max": gaps[-1]}
    for key, share in (("median", 0.5), ("p95", 0.95), ("p99", 0.99)):
        place = share * (gaps.size - 1)  # between the two next to it
        low = int(place)
        wanted[key] = gaps[low] + (place - low) * (gaps[min(low + 1, gaps.size - 1)] - gaps[low])
    assert description["gap_ms"] == {key: pytest.approx(value, rel=1e-3, abs=0.0001) for key, value in wanted.items()}


def test_described_fields_have_units_and_bounds():
    fields = {field["name"]: field for field in CATALOG["city"].describe()["fields"]}
    assert list(fields) == list(SCHEMAS["city"].columns)
    assert fields["source"] == {
        "name": "source", "unit": "string", "label": "string", "kind": "sv", "observed": False, "bounds": None,
    }  # fmt: skip
    low, high = SCHEMAS["city"].bounds["temperature"]
    assert fields["temperature"]["bounds"] == [low, high]
    assert fields["temperature"]["unit"] == "°C" != fields["temperature"]["label"]
    assert fields["temperature"]["observed"]


def test_arrivals_equal_those_of_a_paced_source():
    now = [0.0]
    curve = rates.grid(speed=100, meters=60)
    source = streams.grid(60, messages=200, curve=curve, format="wide")
    source.clock = lambda: now[0]
    offset, seen = source.initial(), []
    for step in range(6000):
        now[0] = step / 100
        following = source.latest(offset)
        seen += [now[0]] * source.count(offset, following)
        offset = following
        if len(seen) == 200:
            break
    assert rates.arrivals(curve, 200) == pytest.approx(np.array(seen), abs=0.011)


def test_unknown_stream_is_refused_with_a_hint():
    with pytest.raises(ConfigError, match=r"no generated stream 'grit'.*did you mean \"grid\""):
        streams.generate("grit")
    with pytest.raises(ConfigError, match="taxis must be a whole number >= 1, got 0"):
        streams.generate("taxi", 0)


# -- command ---------------------------------------------------------------------------------------


@pytest.mark.long
def test_command_lists_the_streams(command):
    code, out, _ = command("streams")
    assert code == 0
    assert all(name in out for name in CATALOG)
    code, out, _ = command("streams", "--json")
    assert [f["name"] for f in json.loads(out)] == [*CATALOG, *STREAMS]
    code, out, _ = command("streams", "fit", "--speed", "10", "--json")
    figures = json.loads(out)
    assert figures["rate"]["mean"] == 5000
    assert [f["name"] for f in figures["fields"]] == list(SCHEMAS["fit"].columns)


@pytest.mark.long
def test_command_draws_the_rates(command, tmp_path):
    code, out, err = command("streams", "city", "--plot", str(tmp_path / "city.png"))
    assert (code, err) == (0, "")
    assert decode(tmp_path / "city.png").shape[:2] == (462, 1210)
    assert "airquality_raw" in out


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["citty"], 'did you mean "city"'),
        (["--plot", "x.png"], "--plot needs the name of a stream"),
        (["city", "--speed", "-1"], "speed must be a finite number > 0, got -1.0"),
        (["city", "--plot", "no/such/folder/x.png"], "cannot be written"),
    ],
)
def test_command_refuses_misuse(command, arguments, text):
    code, _, err = command("streams", *arguments)
    assert code == 2
    assert text in err
    assert "Traceback" not in err


# -- STATS -----------------------------------------------------------------------------------------


def expected(source, name):
    """Records of each result, counted from the observations without any of the tasks."""
    rows = table(source).to_pandas()
    rows = rows[rows["obs_type"].isin(SCHEMAS[name].numeric)]
    keys = rows.groupby(["sensor_id", "obs_type"])["value"]
    return {
        "avg": int((keys.count() // 10).sum()),
        "slr": int((keys.size() - 9).sum()),  # the Kalman filter estimates missing ones
        "dac": len(rows),
    }


@pytest.mark.parametrize("name", ["city", "fit", "grid"])
def test_stats_over_every_stream(name):
    wanted = expected(streams.generate(name, 5, messages=400, format="observations"), name)
    result = dataflows.stats(name, sliding=False, average_window=10).run(
        source=streams.generate(name, 5, messages=400), sinks=MemorySink()
    )
    assert {k: result[k].num_rows for k in wanted} == wanted
    assert result.summary.errors == 0
    ahead = {len(p) for p in result["slr"]["predictions"].to_pylist()}
    assert ahead == {2 if name == "grid" else 10}


@pytest.mark.long
def test_stats_over_the_fit_sample(sample_data):
    source = streams.replay(sample_data / "riotbench" / "FIT_sample_data_senml.csv")
    result = dataflows.stats("fit", sliding=False).run(source=source, sinks=MemorySink())
    # messages with 11 readings of one subject, and windows of ten
    n = samples.expected(sample_data, made=16, papers=45)
    rows = {"avg": 11 * (n // 10), "slr": 11 * (n - 9), "dac": 11 * n}
    assert {k: result[k].num_rows for k in rows} == rows
    assert result.summary.errors == 0
    assert set(result["dac"]["obs_type"].to_pylist()) == set(SCHEMAS["fit"].observed)


@pytest.mark.parametrize("format", ["senml", "csv", "observations", "wide"])
@pytest.mark.parametrize("name", CATALOG)
def test_batches_have_the_schema_of_the_source(name, format):
    source = streams.generate(name, 5, messages=3, format=format)
    assert source.schema.equals(table(source).schema, check_metadata=True)


@pytest.mark.parametrize("name", [*STREAMS, *CATALOG])
def test_pickled_source_gives_the_same_records(name):
    """As on Spark, where the source is made here and read there; before it was read here, too."""
    source = streams.generate(name, messages=30)
    copy = pickle.loads(pickle.dumps(source))
    assert table(copy).equals(table(source))

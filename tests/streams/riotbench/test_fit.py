"""The FIT generator: reproducible anywhere, shaped like the sample, and as the specification's model."""

import json

import numpy as np
import pyarrow as pa
import pytest

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.core.schema import FIT, OBSERVATIONS, RAW
from riot_ops.ingest import rates
from riot_ops.streams import fit
from riot_ops.streams.riotbench.fit import ACTIVITIES, BASE_MS, FitSource, activity_of
from tests.streams.records import any_split, check_any_split, table

ACC = [c for c in FIT.columns if c.startswith("acc")]


@pytest.fixture(scope="module")
def clean():
    """Twenty minutes of ten subjects: 600,000 messages, 200 activities."""
    return table(FitSource(10, 600_000, format="wide", dirt=False)).to_pandas()


@pytest.fixture(scope="module")
def dirty():
    return table(FitSource(10, 200_000, format="wide")).to_pandas()


# -- reproducible ----------------------------------------------------------------------------------


@pytest.mark.long
@any_split
def test_any_split_gives_the_same_records(subjects, start, n, parts, form, seed):
    check_any_split(FitSource(subjects, seed=seed, format=form), start, n, parts)


def test_seeds_differ_and_neither_length_nor_other_subjects_matter():
    first = table(FitSource(5, 100, format="wide"))
    assert table(FitSource(5, format="wide"), 0, 100).equals(first)
    assert not table(FitSource(5, format="wide", seed=1), 0, 100).equals(first)
    one = table(FitSource(1, 20, format="wide")).drop_columns("seq")
    assert first.drop_columns("seq").take(list(range(0, 100, 5))).equals(one)


# -- forms -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_text_equals_the_observations():
    n = 3000
    text = table(FitSource(12), 0, n)
    assert text.schema == RAW
    assert text["payload"][-1].as_py().endswith(b'"}')
    rows = table(FitSource(12, format="observations"), 0, n)
    assert rows.schema == OBSERVATIONS
    session = t.ParseSenML(schema="fit").session()
    parsed = pa.Table.from_batches([session.push_batch(b) for b in text.to_batches()])
    assert parsed.to_pylist() == rows.to_pylist()
    assert session.errors == []
    assert rows["value"].null_count > 0
    wide = t.ParseSenML(schema="fit", layout="wide", fields=FIT.columns[2:]).session()
    parsed = pa.Table.from_batches([wide.push_batch(b) for b in text.to_batches()])
    columns = ["event_time", *FIT.columns[2:]]
    assert parsed.select(columns).to_pylist() == table(FitSource(12, format="wide"), 0, n).select(columns).to_pylist()


def test_csv_has_the_columns_of_the_schema():
    lines = table(FitSource(12, 2000, format="csv"))["payload"].to_pylist()
    wide = table(FitSource(12, 2000, format="wide")).to_pylist()
    for line, row in zip(lines, wide, strict=True):
        subject, time, *values = line.decode().split(",")
        assert subject == row["subjectId"]
        assert int(time) == round(row["event_time"].timestamp() * 1000)
        assert [None if v == "null" else float(v) for v in values] == [row[c] for c in FIT.columns[2:]]
    # as measured on the sample; nulls and numbers that end in 0 are shorter
    assert np.mean([len(line) for line in lines]) == pytest.approx(214.7, abs=3)
    made = t.CSVToSenML(schema="fit").session().push({"payload": lines[0]})[0]["payload"]
    assert json.loads(made)["bt"] == BASE_MS


def test_text_has_the_form_of_the_sample(sample_data):
    def pattern(line):
        message = json.loads(line.partition(",")[2])
        assert isinstance(message["bt"], str)
        return [(e["n"], e["u"].strip(), "sv" in e, list(e)) for e in message["e"]]

    sample = (sample_data / "riotbench" / "FIT_sample_data_senml.csv").read_text().splitlines()
    ours = [p.decode() for p in table(FitSource(10, 5000))["payload"].to_pylist()]
    assert pattern(ours[0]) == pattern(sample[0])
    assert "\\/" in sample[0]
    assert "\\/" in ours[0]
    # 1 % nulls take 2 bytes of 11 values, and the sample is one person standing
    assert np.mean([len(line) for line in ours]) == pytest.approx(np.mean([len(line) for line in sample]), abs=5)


@pytest.mark.long
def test_standing_person_has_the_readings_of_the_sample(sample_data, clean):
    sample = (sample_data / "riotbench" / "FIT_sample_data_senml.csv").read_bytes().splitlines()
    session = t.ParseSenML(schema="fit", layout="wide", fields=FIT.columns[2:]).session()
    found = pa.Table.from_batches([session.push_batch(pa.RecordBatch.from_pydict({"payload": sample}))]).to_pandas()
    standing = clean[clean["label"] == 1]
    assert len(standing) > 10_000
    for name in FIT.columns[2:-1]:
        if not name.startswith("magnetometer"):  # which walk at random
            spread = standing[name].std()
            assert abs(found[name].mean() - standing[name].mean()) < 3 * spread + 0.03
    steps = found.drop_duplicates()[ACC].diff().abs().max().max()
    ours = standing[standing["subjectId"] == standing["subjectId"].iloc[0]][ACC].diff().abs().median().median()
    assert 0.03 < ours < 0.3 < steps + 0.3


# -- time ------------------------------------------------------------------------------------------


def test_every_subject_reports_every_20_ms():
    source = FitSource(7, 1000, format="wide")
    rows = table(source).to_pandas()
    times = table(source)["event_time"].cast("int64").to_numpy() // 1000
    assert (times == BASE_MS + np.arange(1000) // 7 * 20).all()
    assert list(rows["subjectId"][:8]) == [*(f"subject{i}" for i in range(1, 8)), "subject1"]
    for i in (0, 1, 6, 7, 999):
        assert source.time_at({"message": i}) == times[i] * 1000
        assert source.until({"message": 0}, int(times[i]) * 1000)["message"] == np.searchsorted(
            times, times[i], "right"
        )
    assert source.until({"message": 0}, 0)["message"] == 0
    assert source.time_at({"message": 1000}) is None


def test_rate_is_constant():
    times = table(FitSource(10, duration="1min", format="wide"))["event_time"].combine_chunks()
    assert rates.observed_rates(times).tolist() == [500] * 60
    assert rates.fit().cumulative(60) == len(times)
    assert FitSource(3, duration="1d").messages == 3 * 50 * 86_400


# -- model -----------------------------------------------------------------------------------------


@pytest.mark.long
def test_activities_last_a_minute():
    # one subject for 20 hours at one reading per second
    source = FitSource(1, format="wide", dirt=False)
    label = np.array([source.wide(i, i + 1)["label"][0].as_py() for i in range(0, 20 * 180_000, 250)])
    changes = np.flatnonzero(np.diff(label))
    # 1,200 changes are nearly regular (one in each turn): a standard error of 1 %
    assert 20 * 3600 / len(changes) == pytest.approx(60, rel=0.06)
    share = np.bincount(label.astype(int), minlength=13) / label.size
    assert share.size == 13
    assert share == pytest.approx(1 / 13, abs=0.03)


@pytest.mark.long
def test_noise_is_correlated_over_a_step(clean):
    # at rest nothing but the AR(1) noise is left: 0.9 per step of 20 ms, deviation 0.3
    found, spread = [], []
    for _, rows in clean[clean["label"].isin([1, 2, 3])].groupby("subjectId"):
        steps = np.diff(rows.index.to_numpy()) == 10
        same = steps & (np.diff(rows["label"].to_numpy()) == 0)
        x = (rows[ACC] - rows.groupby("label")[ACC].transform("mean")).to_numpy()
        found.append((x[1:][same] * x[:-1][same]).mean() / (x**2).mean())
        spread.append((x**2).mean())
    assert np.mean(found) == pytest.approx(0.9, abs=0.01)
    assert np.mean(spread) ** 0.5 == pytest.approx(0.3, rel=0.05)


@pytest.mark.long
def test_movements_have_the_frequency_of_the_activity(clean):
    seen = 0
    for (_, label), rows in clean.groupby(["subjectId", "label"]):
        name, rate, size, *_ = ACTIVITIES[int(label)]
        if size < 1 or len(rows) < 1000 or (np.diff(rows.index) != 10).any():
            continue
        x = rows["acc_chest_x"].to_numpy()
        power = np.abs(np.fft.rfft(x - x.mean())) ** 2
        peak = np.fft.rfftfreq(x.size, 0.02)[power.argmax()]
        assert peak == pytest.approx(rate, rel=0.11), name  # each subject's own pace is within 10 %
        seen += 1
    assert seen > 20


def test_ecg_is_a_train_of_pulses(clean):
    for lead in ("ecg_lead_1", "ecg_lead_2"):
        x = clean[clean["subjectId"] == "subject3"][lead].to_numpy()
        beats = np.flatnonzero((x[1:-1] > 0.5) & (x[1:-1] >= x[:-2]) & (x[1:-1] > x[2:]))
        gaps = np.diff(beats) * 0.02
        assert np.quantile(gaps, 0.02) > 0.5 - 0.05
        assert np.quantile(gaps, 0.98) < 1 + 0.05
        assert x.max() == pytest.approx(1.1, abs=0.15)
        assert np.quantile(x, [0.16, 0.5]) == pytest.approx([-0.05, 0], abs=0.02)


def test_gyroscopes_and_magnetometers(clean):
    gyro = clean[[c for c in FIT.columns if c.startswith("gyro")]]
    assert gyro.abs().max().max() <= 1.5
    rest = clean[clean["label"] == 1]
    rest = rest[rest["subjectId"] == rest["subjectId"].iloc[0]]
    assert rest[gyro.columns].diff().abs().median().max() < 0.02
    magnet = clean[clean["subjectId"] == "subject1"][[c for c in FIT.columns if c.startswith("magnet")]]
    assert magnet.diff().std().to_numpy() == pytest.approx(0.2, rel=0.05)
    assert magnet.std().max() < 2


def test_valid_ranges_hold_nearly_all(clean):
    for name, (low, high) in FIT.bounds.items():
        margin = 0.1 * (high - low) + 1e-3
        assert clean[name].between(low - margin, high + margin).all()
        assert clean[name].between(low, high).mean() > 0.95


@pytest.mark.long
def test_nulls_and_outliers(dirty):
    beyond = 0
    for name, (low, high) in FIT.bounds.items():
        # 200,000 draws of 1 %: five standard errors are 0.11 %
        assert dirty[name].isna().mean() == pytest.approx(0.01, abs=0.0011)
        margin = 0.1 * (high - low) + 1e-3
        beyond += (~dirty[name].between(low - margin, high + margin) & dirty[name].notna()).mean()
    assert beyond / 11 == pytest.approx(0.005, abs=0.0003)
    others = [c for c in FIT.columns[2:] if c not in FIT.bounds]
    assert dirty[others].notna().all().all()
    missing = dirty[list(FIT.bounds)].isna()
    assert (missing.sum(axis=1) > 1).mean() == pytest.approx(0.0052, abs=0.001)  # independent of each other


def test_dirt_can_be_disabled(clean):
    assert clean.notna().all().all()


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"subjects": 0}, "subjects must be a whole number >= 1, got 0"),
        ({"subjects": 1.5}, "subjects must be a whole number >= 1, got 1.5"),
        ({"format": "cvs"}, "format must be one of .*did you mean"),
        ({"messages": -1}, "messages must be"),
        ({"duration": "0s"}, "duration must be > 0"),
        ({"duration": "1d", "messages": 5}, "together"),
        ({"seed": "x"}, "seed"),
        ({"rate": 1.0, "curve": rates.fit()}, "exactly one"),
    ],
)
def test_misuse_is_refused(parameters, text):
    with pytest.raises(ConfigError, match=text):
        fit(**parameters)


def test_activities_are_uniform_and_last_a_minute_on_average():
    ticks = range(0, 50 * 60 * 4000, 25)  # 4,000 minutes, every half second
    found = np.array([activity_of(np.uint64(3), tick) for tick in ticks])
    shares = np.bincount(found, minlength=13) / found.size
    assert shares == pytest.approx([1 / 13] * 13, abs=0.02)
    changes = np.count_nonzero(np.diff(found))
    assert 4000 / changes == pytest.approx(1, rel=0.08)

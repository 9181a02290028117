"""The tuning suite."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from riot_bench.suites.streambench import tuning as streambench_knobs

from riot_ops.core.buffering import Buffering
from riot_ops.core.errors import ConfigError


def test_relative_effect_by_hand() -> None:
    assert [streambench_knobs.relative_effect(100.0, x) for x in (100.0, 50.0, 169.0)] == [0.0, -50.0, 69.0]
    with pytest.raises(ConfigError, match="first must be > 0, got 0"):
        streambench_knobs.relative_effect(0.0, 1.0)


@pytest.mark.spark
@pytest.mark.slow
def test_settings_of_tuning(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    every = streambench_knobs.tuning_settings(20)
    assert list(every) == ["records", "partitions", "block", "compression", "state", "checksum", "store", "crossing"]
    chosen = {"partitions": {"1": every["partitions"]["1"], "4": every["partitions"]["4"]}, "store": every["store"]}
    monkeypatch.setattr(streambench_knobs, "tuning_settings", lambda each: chosen if each == 20 else {})
    together: list[tuple[Any, ...]] = []

    def factorial(*given: Any) -> Any:
        together.append((given[1], given[2].stream, *given[3:]))
        return iter(())

    monkeypatch.setattr(streambench_knobs, "factorial", factorial)
    sizes = streambench_knobs.Sizes(
        10, 8, ("0 seconds", "1 second"), 50.0, 2.0, 60.0, ("wordcount", "identity"), (1, 3), 1
    )
    found = {m.measure: m for m in streambench_knobs.tuning(True, ["grep", "wordcount"], 2.0, sizes)}
    assert together == [("wordcount", "searches", (0.0, 1.0), [20, 60], (1, 4), 120.0)]
    at = "streambench/knobs"
    for setting in ("partitions/1", "partitions/4", "store/memory", "store/rocksdb", "trigger/0", "trigger/1"):
        assert (f"{at}/{setting}/throughput" in found) == (not setting.startswith("trigger"))
        assert found[f"{at}/{setting}/latency-p95"].value > 0
    assert "100 records/s" in found[f"{at}/trigger/1/latency-p95"].against
    assert "keep up" in (description := found[f"{at}/trigger/1/latency-p95"].against) or "kept up" in description
    assert "160 records" in found[f"{at}/partitions/1/throughput"].against
    rates = [found[f"{at}/partitions/{n}/throughput"].value for n in (1, 4)]
    assert found[f"{at}/partitions/effect-throughput"].value == pytest.approx(100 * (rates[1] / rates[0] - 1))
    assert [found[f"{at}/partitions/effect-{of}"].published for of in ("throughput", "latency")] == [69, 33]
    assert 1 <= found[f"{at}/pareto"].value <= 2


def test_effects_have_a_value_for_each_repetition() -> None:
    of = {"1": [(100.0, 10.0), (100.0, 20.0), (200.0, 10.0)], "4": [(150.0, 20.0), (300.0, 10.0), (200.0, 10.0)]}
    found = {label: [streambench_knobs.SettingRun(*run) for run in runs] for label, runs in of.items()}
    rate, latency = streambench_knobs._effects("partitions", found)
    assert (rate.value, rate.values, rate.published) == (50.0, (50.0, 200.0, 0.0), 69.0)
    assert (latency.value, latency.values, latency.published) == (0.0, (100.0, -50.0, 0.0), 33.0)
    assert "too few" not in rate.against
    once = {label: runs[:1] for label, runs in found.items()}
    assert all(
        "too few repetitions for an interval: 1 of 3" in m.against for m in streambench_knobs._effects("x", once)
    )
    [one, _] = streambench_knobs._figures("x", "1", found["1"], "how")
    assert (one.value, one.values, one.against) == (100.0, (100.0, 100.0, 200.0), "how")
    assert (streambench_knobs.FULL.repetitions, streambench_knobs.QUICK.repetitions) == (3, 1)
    stopped = {"1": found["1"], "4": [one._replace(caveat="saturated") for one in found["4"]]}
    for group in (streambench_knobs._effects("x", stopped), streambench_knobs._figures("x", "4", stopped["4"], "how")):
        assert [one.against.count("; saturated") for one in group] == [1, 1]
    assert not any("saturated" in one.against for one in streambench_knobs._effects("x", found))
    paced = {label: [one._replace(rate=math.nan, caveat="kept up") for one in runs] for label, runs in found.items()}
    [late] = streambench_knobs._figures("trigger", "4", paced["4"], "how")
    assert (late.measure, late.value, late.against) == ("streambench/knobs/trigger/4/latency-p95", 10.0, "how; kept up")
    [grown] = streambench_knobs._effects("trigger", paced)
    assert (grown.measure, grown.values) == ("streambench/knobs/trigger/effect-latency", (100.0, -50.0, 0.0))


@pytest.mark.parametrize("sizes", [streambench_knobs.FULL, streambench_knobs.QUICK])
def test_batch_limits_allow_a_second_micro_batch(sizes: streambench_knobs.Sizes) -> None:
    total = sizes.files // 4 * 4 * sizes.lines_per_file
    for setting in streambench_knobs.tuning_settings(sizes.lines_per_file)["records"].values():
        assert total // setting.options["max_records"] >= 2


@pytest.mark.parametrize(
    ("trigger", "spent", "took", "done", "caveat"),
    [
        ("1 second", (1.5, 0.5), 2.0, True, "kept up"),
        ("1 second", (1.5, 0.6), 2.0, True, "did not keep up"),
        ("1 second", (0.5, 0.5), 7.0, False, "did not keep up"),
        ("0 seconds", (9.0, 9.0), 29.0, True, "kept up"),
        ("0 seconds", (9.0, 9.0), 31.0, True, "did not keep up"),  # 2 s of records, 10 to start, and 2 micro-batches
        ("5 seconds", (0.5, 0.5), 17.5, True, "kept up"),
        ("5 seconds", (0.5, 0.5), 18.5, True, "did not keep up"),
    ],
)
def test_late_triggers_are_reported(
    trigger: str, spent: tuple[float, ...], took: float, done: bool, caveat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Query:
        streaming, active = None, not done
        summary = SimpleNamespace(latency=SimpleNamespace(quantiles=lambda share: [share]))

        def start(self, *_: Any, trigger: str, **__: Any) -> Any:
            asked.append(trigger)
            return self

        def wait(self, timeout: timedelta) -> None:
            asked.append(timeout)

        def stop(self) -> None:
            asked.append("stop")

    asked: list[Any] = []
    monkeypatch.setattr(streambench_knobs, "program_flow", lambda _: Query())
    monkeypatch.setattr(streambench_knobs, "durations", lambda _: list(spent))
    times = iter((100.0, 100.0 + took))
    monkeypatch.setattr(streambench_knobs, "time", SimpleNamespace(monotonic=lambda: next(times)))
    lines, sizes = SimpleNamespace(stream="searches"), replace(streambench_knobs.QUICK, seconds=2.0, limit_s=5.0)
    found = streambench_knobs._run_paced(None, "wordcount", lines, trigger, sizes)  # type: ignore[arg-type]
    assert math.isnan(found.rate)
    assert (found.latency, found.caveat) == (950.0, caveat)
    assert asked == [trigger, timedelta(seconds=7), *([] if done else ["stop"])]


def test_settings_reach_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []

    class Conf(dict[str, str]):
        set = dict.__setitem__

    class Session:
        conf = Conf({streambench_knobs.CHANGELOG: "true", streambench_knobs.CHECKSUM: "true"})

    def packed(spark: Any, _: str, __: Any, ___: float, buffering: Buffering, **options: Any) -> Any:
        changelog = spark.conf[streambench_knobs.CHANGELOG]
        checksums.append(spark.conf[streambench_knobs.CHECKSUM])
        asked.append((changelog, buffering.capacity, *options.values(), buffering.codec))
        return streambench_knobs.Run((1.0, 3.0), options["max_records"])

    def on_spark(*given: Any, store: str | None) -> Any:
        others.append((given[2], store and store.rpartition(".")[2]))
        return streambench_knobs.Run((1.0, 3.0), 40, saturated=given[2] == "udf")

    others: list[tuple[str, str | None]] = []
    checksums: list[str] = []
    monkeypatch.setattr(streambench_knobs, "run_packed", packed)
    monkeypatch.setattr(streambench_knobs, "run_pyspark", on_spark)
    for knob in streambench_knobs.tuning_settings(10).values():
        for setting in knob.values():
            found = streambench_knobs._run(Session(), "wordcount", None, setting, 1.0)  # type: ignore[arg-type]
            stopped = "saturated" if setting.implementation == "udf" else ""
            assert found == (setting.options["max_records"] * 2 / 4.0, pytest.approx(2900.0), stopped)
    assert others == [
        ("expressions", "HDFSBackedStateStoreProvider"),
        ("expressions", "RocksDBStateStoreProvider"),
        ("pickled", None),
        ("udf", None),
    ]
    assert Session.conf == {streambench_knobs.CHANGELOG: "true", streambench_knobs.CHECKSUM: "true"}
    base = ("true", 1 << 23, 40, 2, "lz4")
    assert [one[2] for one in asked[:4]] == [10, 20, 40, 80]
    assert [one[3] for one in asked[4:8]] == [1, 2, 4, 8]
    assert [one[1] for one in asked[8:11]] == [1 << 14, 1 << 18, 1 << 23]
    assert [one[4] for one in asked[11:14]] == [None, "lz4", "zstd"]
    assert [one[0] for one in asked[14:16]] == ["false", "true"]
    assert checksums[16:] == ["false", "true"]
    assert base in asked

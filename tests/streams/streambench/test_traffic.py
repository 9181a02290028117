"""Generated packets and flows: mix, rates, true classes and features."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from riot_ops.core.errors import ConfigError
from riot_ops.models import fit_network
from riot_ops.streams import generate
from riot_ops.streams.streambench import FlowsSource, TrafficSource
from riot_ops.streams.streambench.flow_packets import CLASSES
from riot_ops.streams.streambench.flows import FEATURES
from tests.reference.streambench import flows as reference
from tests.streams.generated_lines import lines

WINDOW = 20_000  # packets at the usual rate


@pytest.fixture(scope="module")
def descriptions():
    """Three windows of packets, flow by flow."""
    return reference.flows(lines(TrafficSource(), 0, 3 * WINDOW))


@pytest.mark.long
def test_flows_have_the_given_shares(descriptions):
    labels = np.array([one["label"] for one in descriptions.values()])
    shares = np.bincount(labels, minlength=3) / labels.size
    # of about 3,000 flows: within four standard deviations
    assert shares == pytest.approx([0.8, 0.1, 0.1], abs=4 * np.sqrt(0.16 / labels.size))
    assert labels.size > 2_500


def test_classes_have_their_traffic_patterns(descriptions):
    normal, dos, scan = ([one for one in descriptions.values() if one["label"] == kind] for kind in range(3))

    def mean(flows, name):
        return np.mean([one[name] for one in flows])

    assert mean(dos, "packets") > 2.5 * mean(normal, "packets")
    assert mean(dos, "target_ports") < 2.5
    assert mean(scan, "target_ports") > 5
    assert mean(scan, "packets") < mean(dos, "packets")
    assert mean(scan, "rst") > 4 * mean(normal, "rst")
    udp = [one["udp_share"] > 0.5 for one in dos]
    assert 0.3 < np.mean(udp) < 0.5
    assert mean([one for one, flood in zip(dos, udp, strict=True) if not flood], "syn") > 15 * mean(normal, "syn")


def test_windows_hold_equally_many_packets_and_times_ascend():
    source = TrafficSource(rate=1_500)
    times = np.array([int(line.split(",")[0]) for line in lines(source, 0, 9_000)])
    assert (np.diff(times) >= 0).all()
    assert np.unique(times // 2_000_000, return_counts=True)[1].tolist() == [3_000] * 3
    assert times[0] // 2_000_000 * 2_000_000 == source.start_ms * 1000


@pytest.mark.long
@pytest.mark.parametrize("rate", [1, 3, 50, 10_000])
def test_line_depends_on_its_number_alone(rate):
    source = TrafficSource(rate=rate, seed=3)
    n = 5 * rate + 7
    whole = lines(source, 0, n)
    other = pickle.loads(pickle.dumps(source))
    assert lines(other, n // 2, n) == whole[n // 2 :] and lines(TrafficSource(rate=rate, seed=3), 0, 3) == whole[:3]
    assert source.truth(np.arange(n)).tolist() == [int(line.rsplit(",", 1)[1]) for line in whole]
    assert source.truth(np.arange(0)).tolist() == []
    assert lines(TrafficSource(rate=rate, seed=4), 0, n) != whole


@pytest.mark.long
def test_pair_of_hosts_has_one_flow_in_a_window():
    source = TrafficSource(rate=100_000)
    kinds: dict[tuple[str, ...], set[str]] = {}
    for line in lines(source, 0, 200_000):
        _, src, dst, *_, label = line.split(",")
        kinds.setdefault((src, dst), set()).add(label)
    assert all(len(one) == 1 for one in kinds.values())


@pytest.mark.long
def test_overlap_lowers_the_share_of_detected_attacks():
    right = []
    for overlap in (0.0, 0.2, 0.7, 1.0):
        (x, label), (other, wanted) = (
            FlowsSource(seed=seed, records=2_000, overlap=overlap).vectors() for seed in (1, 2)
        )
        model = fit_network(
            x, [CLASSES[i] for i in label], FEATURES, "threat", classes=CLASSES, validation_fraction=0, max_iter=50
        )
        right.append(np.mean(model.predict(other) == wanted))
    assert right == sorted(right, reverse=True)
    assert right[0] > 0.985 and 0.95 <= right[1] <= 0.99 and right[-1] < 0.83


@pytest.mark.long
def test_dirty_lines_have_their_share_and_form():
    plain, dirty = (lines(TrafficSource(dirt=dirt), 0, 20_000) for dirt in (False, True))
    bad = [b for a, b in zip(plain, dirty, strict=True) if a != b]
    assert 60 < len(bad) < 140
    assert any("long" in line for line in bad) and any(line.startswith("soon,") for line in bad)
    assert any(len(line) == 30 for line in bad)
    flows = [line.split(",") for line in lines(FlowsSource(dirt=True), 0, 10_000)]
    assert 10 < sum(len(cells) == 3 for cells in flows) < 45 and 10 < sum("many" in cells for cells in flows) < 45


@pytest.mark.parametrize(
    ("stream", "wrong", "message"),
    [
        ("traffic", {"rate": 0}, "rate must be a whole number from 1 to 400,000, got 0"),
        ("traffic", {"rate": 400_001}, "rate must be"),
        ("traffic", {"rate": 1.5}, "rate must be"),
        ("traffic", {"overlap": 1.1}, "overlap must be from 0 to 1"),
        ("flows", {"overlap": -0.1}, "overlap must be from 0 to 1"),
        ("flows", {"overlap": True}, "overlap must be from 0 to 1"),
        ("flows", {"records": 0}, "records must be a whole number >= 1"),
    ],
)
def test_misuse_is_refused(stream, wrong, message):
    with pytest.raises(ConfigError, match=message):
        generate(stream, **wrong)

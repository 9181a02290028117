"""Threat detection, against features of single packets and the network applied at once; options; bad lines."""

from __future__ import annotations

from datetime import timedelta

import numpy as np
import pytest

from riot_ops import models
from riot_ops.core.errors import ConfigError, ModelError
from riot_ops.dataflows import threat
from riot_ops.dataflows.streambench.threat import packaged_model
from riot_ops.graph.plan import plan
from riot_ops.measure.classification import evaluate
from riot_ops.models import NetworkModel
from riot_ops.streams.streambench import FlowsSource, TrafficSource
from riot_ops.streams.streambench.flow_packets import CLASSES
from riot_ops.streams.streambench.flows import FEATURES
from tests.reference.streambench import flows as reference
from tests.streams.generated_lines import lines


def messages(texts):
    return [{"payload": text.encode()} for text in texts]


def given():
    return NetworkModel.from_bytes(packaged_model())


def test_flows_are_classified_by_the_network():
    source = FlowsSource(messages=1_000, seed=5)
    result = threat().run(source, batch_size=130)
    rows = result["threats"].sort_by("seq").to_pylist()
    x, label = (part[:1_000] for part in source.vectors())
    wanted = given().probabilities(x)
    assert [row["label"] for row in rows] == label.tolist()
    assert [row["class_index"] for row in rows] == wanted.argmax(axis=1).tolist()
    assert [row["class"] for row in rows] == [CLASSES[i] for i in wanted.argmax(axis=1)]
    assert [row["class_probability"] for row in rows] == wanted.max(axis=1).tolist()
    assert [[row["src"], row["dst"]] for row in rows[:50]] == [line.split(",")[1:3] for line in lines(source, 0, 50)]
    assert 0.95 < evaluate(label, [row["class_index"] for row in rows], CLASSES).accuracy < 0.99


@pytest.fixture(scope="module")
def packets():
    """A few windows of little traffic: flows of one packet, and some that continue in the next window."""
    return lines(TrafficSource(rate=2_000, seed=2), 0, 12_000)


def windows(texts, **options):
    flow = threat(from_packets=True, **options)
    result = flow.run(messages(texts), batch_size=170)
    return result, result["threats"].to_pylist()


@pytest.mark.long
def test_features_equal_single_packets(packets):
    result, rows = windows(packets)
    wanted = reference.flows(packets)
    assert len(rows) == len(wanted) and result["errors"].num_rows == 0
    assert {1, 2} <= {one["packets"] for one in wanted.values()}
    by_key = {(row["src"], row["dst"], row["event_time"].timestamp() // 2 * 2_000_000): row for row in rows}
    keys = list(wanted)
    x = [[wanted[key][name] for name in FEATURES] for key in keys]
    found = [by_key[key] for key in keys]
    assert [row["label"] for row in found] == [wanted[key]["label"] for key in keys]
    np.testing.assert_allclose(
        [row["class_probability"] for row in found], given().probabilities(x).max(axis=1), rtol=0, atol=1e-9
    )
    # the features before the classification
    flow = threat(from_packets=True)
    flow.sink("out", flow.stream("rates"))
    rates = flow.run(messages(packets), batch_size=999)["rates"].to_pylist()
    for row in rates:
        one = wanted[row["src"], row["dst"], round(row["window_start"].timestamp() * 1e6)]
        assert [row[name] for name in FEATURES] == pytest.approx([one[name] for name in FEATURES], rel=1e-9, abs=1e-12)


def test_results_are_independent_of_batch_sizes(packets):
    flow, order = threat(from_packets=True), [("event_time", "ascending"), ("src", "ascending"), ("dst", "ascending")]
    once, cut = (flow.run(messages(packets), batch_size=size)["threats"].sort_by(order) for size in (12_000, 311))
    assert once.equals(cut)


@pytest.mark.long
def test_late_packet_is_an_error(packets):
    first, *_, last = packets
    late = first.replace(first.split(",")[1], "10.9.9.9")
    result, _ = windows([*packets, late])
    assert result["errors"]["reason"].to_pylist() == ["late"]
    result, rows = windows([*packets, late], allowed_lateness="1h")
    assert result["errors"].num_rows == 0 and "10.9.9.9" in {row["src"] for row in rows}
    _, longer = windows(packets, window=timedelta(hours=1))
    assert len(longer) < len(rows) and last


def test_gaps_are_those_of_packets_in_order():
    sent = [f"{us},10.0.0.1,10.0.0.2,1,2,6,40,2,64,0" for us in (0, 200_000, 100_000, 300_000)]
    features = []
    for texts, allowed_lateness in (
        (sorted(sent, key=lambda text: int(text.split(",")[0])), "0s"),
        (sent, "100ms"),
        (sent, "1h"),
    ):
        for size in (1, 2, 4):
            flow = threat(from_packets=True, allowed_lateness=allowed_lateness)
            flow.sink("out", flow.stream("rates"))
            result = flow.run(messages(texts), batch_size=size)
            (row,) = result["rates"].to_pylist()
            assert result["errors"].num_rows == 0
            features.append([row[name] for name in FEATURES])
            assert [row[name] for name in ("gap_mean", "gap_std", "duration")] == pytest.approx([0.1, 0.0, 0.3])
    assert features == [features[0]] * 9


@pytest.mark.long
def test_malformed_lines_are_errors():
    bad = ["", "soon,10.0.0.1,10.0.0.2,1,2,6,40,2,64,0", "1,10.0.0.1,10.0.0.2,1,2,6,40,2", "1,a,b,1,2,6,x,2,64,0"]
    result, rows = windows(bad)
    assert rows == []
    assert sorted(result["errors"]["reason"].to_pylist()) == ["bad_number", "bad_time", "wrong_cells", "wrong_cells"]
    dirty = threat().run(FlowsSource(messages=2_000, dirt=True))
    assert dirty["threats"].num_rows + dirty["errors"].num_rows == 2_000
    assert set(dirty["errors"]["reason"].to_pylist()) == {"wrong_cells", "bad_number"}
    for from_packets in (False, True):
        assert threat(from_packets=from_packets).run(messages([]))["threats"].num_rows == 0


@pytest.mark.long
def test_lines_without_labels(packets):
    plain = [line.rpartition(",")[0] for line in packets]
    for texts in (plain, packets):  # further cells are ignored
        result, rows = windows(texts, labelled=False)
        assert result["errors"].num_rows == 0 and rows and "label" not in rows[0]
    flows = [line.rpartition(",")[0] for line in lines(FlowsSource(), 0, 20)]
    assert threat(labelled=False).run(messages(flows))["threats"].num_rows == 20
    assert threat().run(messages(flows))["errors"].num_rows == 20


def test_custom_network(tmp_path):
    source = FlowsSource(messages=200)
    x, label = FlowsSource(seed=9, records=500).vectors()
    network = models.fit_network(
        x, [CLASSES[i] for i in label], FEATURES, "threat", classes=CLASSES, max_iter=3, hidden_layer_sizes=(3,)
    )
    path = tmp_path / "network.model"
    path.write_bytes(network.to_bytes())
    wanted = network.probabilities(source.vectors()[0][:200]).max(axis=1).tolist()
    for model in (str(path), network.to_json()):
        rows = threat(model=model).run(source)["threats"].to_pylist()
        assert [row["class_probability"] for row in rows] == wanted
    with pytest.raises(ConfigError, match="is trained already"):
        threat(model=str(path), training_flows=100)
    with pytest.raises(ConfigError, match="training_flows = -1"):
        threat(training_flows=-1)
    with pytest.raises(ModelError):
        threat(model="").run(source)
    other = models.fit_network(x, [CLASSES[i] for i in label], FEATURES, "threat", max_iter=2)
    with pytest.raises(ModelError, match="has the classes dos, normal, scan"):
        threat(model=other.to_json())


@pytest.mark.parametrize(
    ("options", "error_text"),
    [
        ({"window": "3s"}, "window = '3s' needs from_packets = True; otherwise it must be '2s'"),
        ({"allowed_lateness": "3s"}, "allowed_lateness = '3s' needs from_packets = True; otherwise it must be '0s'"),
        ({"seed": 7}, "seed = 7 needs training_flows > 0; otherwise it must be 1"),
        ({"from_packets": True, "window": "nonsense"}, "window.*'nonsense'"),
        ({"from_packets": True, "allowed_lateness": "-3s"}, "allowed_lateness.*-3s"),
    ],
)
def test_unused_or_wrong_options_are_refused(options, error_text):
    with pytest.raises(ConfigError, match=error_text):
        threat(**options)


def test_defaults_of_durations_may_be_given_in_any_form():
    threat(window=timedelta(seconds=2), allowed_lateness=timedelta(0))


@pytest.mark.long
def test_network_trained_at_build_time():
    source = FlowsSource(messages=100)

    def probabilities(**options):
        return threat(**options).run(source)["threats"]["class_probability"].to_pylist()

    x, label = FlowsSource(seed=4, records=400).vectors()
    names = [CLASSES[i] for i in label]
    wanted = models.fit_network(x, names, FEATURES, "threat", classes=CLASSES, seed=4)
    assert (
        probabilities(training_flows=400, seed=4)
        == wanted.probabilities(source.vectors()[0][:100]).max(axis=1).tolist()
    )
    assert probabilities(training_flows=400, seed=5) != probabilities(training_flows=400, seed=4) != probabilities()


def test_packaged_network_has_the_accuracy_of_a_new_one():
    x, label = FlowsSource(seed=2).vectors()
    assert 0.95 <= np.mean(given().predict(x) == label) <= 0.99
    assert (given().rows, given().classes, given().inputs) == (7_000, CLASSES, FEATURES)


def test_classification_needs_no_further_shuffle():
    for from_packets, stages in ((False, 1), (True, 2)):
        assert len(plan(threat(from_packets=from_packets)).stages) == stages

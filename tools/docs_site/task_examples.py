"""An example of each task: the records that it reads, and how it is made, as source text that the pages show and run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

__all__ = ["EXAMPLES", "NOON", "Example"]

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
Row = dict[str, Any]


class Example(NamedTuple):
    """Records, the expression that makes the task, and statements that must run before."""

    task: str
    rows: list[Row]
    before: str = ""


def rows(fields: str, *values: Sequence[Any]) -> list[Row]:
    """Return records; the numbers of ``event_time`` are seconds after noon.

    >>> rows("event_time value", (1, 2.0))
    [{'event_time': datetime.datetime(2024, 5, 1, 12, 0, 1, tzinfo=datetime.timezone.utc), 'value': 2.0}]
    """
    names = fields.split()
    found = [dict(zip(names, one, strict=True)) for one in values]
    for row in found:
        for name in {"event_time", "left_time", "right_time"} & row.keys():
            if row[name] is not None:
                row[name] = NOON + timedelta(seconds=row[name])
    return found


def column(field: str, *values: Any) -> list[Row]:
    """Return records of one field."""
    return [{field: value} for value in values]


READINGS = rows("sensor value", ("a", 21.5), ("b", 7.0), ("a", 22.5), ("a", 20.0), ("b", 9.0), ("a", None))
TIMED = rows(
    "event_time sensor value", (0, "a", 20.0), (10, "b", 7.0), (30, "a", 22.0), (65, "a", 27.0), (70, "b", 9.0), (130, "a", 21.0)
)  # fmt: skip
RACKS = rows(
    "event_time rack cpu",
    (0, "a", 10.0),
    (0, "b", 12.0),
    (0, "c", 90.0),
    (5, "a", 20.0),
    (5, "b", 11.0),
    (5, "c", 13.0),
)
TRAINING = [
    {"event_time": NOON + timedelta(seconds=i), "x": float(i), "level": "low" if i < 3 else "high"} for i in range(6)
]
TEXTS = rows("id text", (1, "River cloud, river."), (2, "no clouds"))
LOG = '10.0.0.7 - - [01/May/2024:12:00:01 +0000] "GET /a HTTP/1.1" 200 512'
SENML = '8000,{"e":[{"n":"meterid","sv":"m1"},{"n":"energyconsumed","v":"2.5"}],"bt":8000}'
TREE = (
    "from riot_ops.models import fit_tree\n"
    'tree = fit_tree([[1.0], [2.0], [8.0], [9.0]], ["low", "low", "high", "high"], ["x"], "level")\n'
)
LINEAR = (
    "from riot_ops.models import LinearModel\n"
    'fare = LinearModel(inputs=("secs", "miles"), target="fare", intercept=2.5, coefficients=(0.005, 2.0))\n'
)
BLOBS = (
    'from riot_ops.connectors.stores import open_blobs\n\nopen_blobs("memory://models").write("MLR-5.model", b"...")\n'
)
TABLE = (
    "from riot_ops.connectors.stores import open_table\n"
    "from riot_ops.connectors.stores.table import Row\n"
    "from riot_ops.connectors.template import encode_key\n\n"
    'open_table("memory", "readings").insert([Row("city", encode_key(ms) + "|s1", {"value": ms / 2}) for ms in (5, 6, 7)])\n'
)

#: By the name of the class.
EXAMPLES: dict[str, Example] = {
    # functions
    "BatchFunction": Example(
        'ro.map_batches(squares, adds={"square": "double"})', column("value", 1.0, 2.0, 3.0),
        "import pyarrow.compute as pc\n\ndef squares(batch):\n    return pc.multiply(batch[\"value\"], batch[\"value\"])\n",
    ),
    "FlatMapFunction": Example('ro.flat_map(words, schema={"word": "string"})', column("text", "so it", "", "goes"),
        "def words(row):\n    return [{\"word\": word} for word in row[\"text\"].split()]\n"),
    "FilterFunction": Example("ro.filter(warm)", column("value", 21.5, 7.0, 22.5),
        "def warm(row):\n    return row[\"value\"] > 20\n"),
    "KeyedFunction": Example('ro.keyed(total, by="sensor", initial=0.0, schema={"sensor": "string", "total": "double"})', READINGS[:5],
        "def total(state, row):\n    total = state + row[\"value\"]\n    return total, {\"sensor\": row[\"sensor\"], \"total\": total}\n"),
    "MapFunction": Example('ro.map(fahrenheit, adds={"fahrenheit": "double"})', column("celsius", 21.5, -40.0),
        "def fahrenheit(row):\n    return {\"fahrenheit\": row[\"celsius\"] * 1.8 + 32}\n"),
    # filters
    "CheckBloomFilter": Example('t.CheckBloomFilter(models={"sensor": ["a", "c"]})', READINGS),
    "TrainBloomFilter": Example('t.TrainBloomFilter(field="sensor", capacity=10)', READINGS),
    "Deduplicate": Example('t.Deduplicate(by=("device", "message"))',
        rows("device message", ("a", 1), ("b", 1), ("a", 1), ("a", 2), ("b", 1))),
    "Filter": Example("t.Filter(\"value > 20 and sensor == 'a'\")", READINGS),
    "DropLate": Example("t.DropLate()", rows("event_time value", (0, 1.0), (5, 2.0), (3, 3.0), (6, 4.0))),
    "RangeFilter": Example('t.RangeFilter(bounds={"temperature": (-40, 60), "humidity": (0, 100)}, by="kind")',
        rows("kind value", ("temperature", 21.5), ("temperature", -99.0), ("humidity", 53.0), ("humidity", 123.0))),
    "SampleByHash": Example('t.SampleByHash(share=0.5, field="id")', column("id", 1, 2, 3, 4, 5, 6)),
    # stores
    "DownloadBlob": Example('t.DownloadBlob(store="memory://models", blob="{model}")',
        column("model", "MLR-5.model", "MLR-6.model"), BLOBS),
    "UploadBlob": Example('t.UploadBlob(store="memory://charts", blob="{name}", value="data")',
        rows("name data", ("a.svg", b"<svg/>"), ("b.svg", b"<svg/>"))),
    "InsertTable": Example('t.InsertTable(store="memory", table="readings", partition="city", row="{event_time:ms}|{sensor}")',
        TIMED[:3]),
    "ReadTableRange": Example('t.ReadTableRange(store="memory", table="readings", partition="city", schema={"value": "double"})',
        rows("start end", (5, 7), (7, 9)), TABLE),
    "PublishMQTT": Example('t.PublishMQTT(url="memory://docs", topic="city/{sensor}", payload=None, fields=("value",))', READINGS[:3]),
    "InsertSQL": Example('t.InsertSQL(store="sqlite://", table="readings", primary_key="id")',
        rows("id value", (1, 21.5), (2, 22.5), (1, 23.0))),
    "Zip": Example('t.Zip(size=2, field="data", entry="name")',
        rows("event_time name data", (0, "a.svg", b"<svg/>"), (1, "b.svg", b"<svg/>"), (2, "c.svg", b"<svg/>"))),
    # arithmetic
    "Compute": Example('t.Compute({"spread": "high - low", "wide": "high - low > 5"})',
        rows("low high", (18.0, 21.5), (12.0, 22.5), (None, 20.0))),
    "NoOp": Example("t.NoOp()", READINGS[:3]),
    "PiViete": Example("operators.PiViete(iterations=30)", column("value", 1.0, 2.0)),
    # joins
    "AsOfJoin": Example('t.AsOfJoin(by="stock", fields="price")',
        rows("stock size price", ("A", None, 11.5), ("B", 10, None), ("A", 20, None), ("A", None, 12.0), ("A", 5, None))),
    "IntervalJoin": Example('t.IntervalJoin(by="id", within="5s", left=("item",))',
        rows("event_time id item euro left_time right_time",
             (0, 1, "tea", None, 0, None), (0, 2, "cup", None, 0, None), (3, 1, None, 4, None, 3), (20, 2, None, 9, None, 20))),
    "AssembleMessage": Example('t.AssembleMessage(by="message", fields=("temperature", "humidity"))',
        rows("message obs_type value", (1, "temperature", 21.5), (2, "humidity", 53.0), (1, "humidity", 48.0),
             (2, "temperature", 7.0))),
    "JoinSide": Example('JoinSide(side="right", by="id", rename=(("order", "id"),), nulls={"item": "string"})',
        rows("event_time order euro", (3, 1, 4), (20, 2, 9)),
        "from riot_ops.tasks.join.join_side import JoinSide\n"),
    "Lookup": Example('t.Lookup(table={"a": "kitchen", "b": "cellar"}, on="sensor", columns="room")', [
        *READINGS[:3], {"sensor": "z", "value": 1.0}]),
    # parsing
    "BagOfWords": Example('operators.BagOfWords(field="text", keep="id")', TEXTS),
    "CSVToSenML": Example('t.CSVToSenML(schema="grid")', column("payload", "meter1,1000,2.5", "meter2,2000,oops")),
    "SyntheticEventTime": Example('operators.SyntheticEventTime(every="2s", messages=3)', rows("seq value", *((i, float(i)) for i in range(5)))),
    "ParseAccessLog": Example('t.ParseAccessLog(schema={"event_time": ("time", "log"), "request": ("request", "string"), "status": ("status", "int64")})',
        column("payload", LOG, "no log")),
    "ParseJSON": Example('t.ParseJSON(schema={"room": ("room", "string"), "value": ("value", "double")})',
        column("payload", '{"room": "kitchen", "value": 21.5}', '{"room": "cellar"}', "{")),
    "Project": Example('t.Project(fields=("value",), constants=(("kind", "temperature"),))', READINGS[:3]),
    "ParseLines": Example('t.ParseLines(schema={"sensor": (0, "string"), "value": (1, "double")}, cells=2)',
        column("payload", "a,21.5", "b,7", "broken")),
    "LabelQuartile": Example("operators.LabelQuartile()", rows("key value", ("a", [3.0, 1.0, 2.0, 2.0, 8.0]), ("b", []))),
    "ParseSenML": Example('t.ParseSenML(schema="grid")', column("payload", SENML, SENML.replace("2.5", "much"))),
    "Tokenize": Example('t.Tokenize(field="text", keep="id")', TEXTS),
    "Unpivot": Example('t.Unpivot(fields=("low", "high"), keep="day")', rows("day low high", (1, 12.0, 21.5), (2, 9.5, None))),
    "ParseXML": Example('t.ParseXML(layout="records", fields=("@rollno", "firstname"))',
        column("payload", '<class><student rollno="7"><firstname>Ada</firstname></student></class>', "<class>")),
    # prediction
    "BayesScore": Example("operators.BayesScore()",
        rows("seq id word n_words count_bad count_good", (1, "m", None, 2, 10, 10), (1, "m", "win", 2, 3, 0), (1, "m", "the", 2, 1, 1))),
    "Bandit": Example('operators.Bandit(actions=("left", "right"), learner="greedy", explore=0.0)',
        rows("round action reward", (1, None, None), (None, "left", 1), (None, "right", 3), (2, None, None))),
    "Classify": Example('t.Classify(inputs="x", model=tree.to_json(), probabilities=True)', column("x", 1.5, 3.5, 8.5, None), TREE),
    "TrainDecisionTree": Example('t.TrainDecisionTree(inputs="x", target="level", size=6)', TRAINING),
    "EstimateError": Example("t.EstimateError()",
        rows("sensor_id prediction observed average", ("a", 12.0, 10.0, None), ("a", None, None, 8.0), ("a", 12.0, 10.0, None))),
    "HistoryMedian": Example("operators.HistoryMedian()", rows("open value", (False, 10.0), (False, 30.0), (False, 14.0), (True, 20.0))),
    "LexiconSentiment": Example("operators.LexiconSentiment()", column("text", "So happy, great!", "sad and angry", "a table")),
    "MarkovScore": Example('operators.MarkovScore(by="account", window=2)',
        rows("account state", ("x", "MNN"), ("x", "MNN"), ("x", "HHS"), ("x", "HHS"))),
    "PredictLinearRegression": Example('t.PredictLinearRegression(inputs=("secs", "miles"), model=fare.to_json())',
        rows("secs miles", (600.0, 3.0), (300.0, 1.2), (None, 2.0)), LINEAR),
    "TrainLinearRegression": Example('t.TrainLinearRegression(inputs="x", target="y", size=5)',
        [{"event_time": NOON + timedelta(seconds=i), "x": float(i), "y": 2.0 * i + 1 + (i % 2) / 4} for i in range(5)]),
    "TrainNeuralNetwork": Example(
        't.TrainNeuralNetwork(inputs="x", target="level", size=12, hidden_layer_sizes=(3,), max_iter=200, validation_fraction=0.0)',
        [{"event_time": NOON + timedelta(seconds=i), "x": float(i), "level": "low" if i < 6 else "high"} for i in range(12)]),
    "SlidingRegression": Example('t.SlidingRegression(by="sensor", window=3, horizon=2)',
        rows("sensor value", *(("a", v) for v in (10.0, 12.0, 13.5, 16.0, 18.0)))),
    "CountSpamWords": Example("operators.CountSpamWords()",
        rows("word count spam", ("win", 2, True), ("win", 1, False), ("win", 3, True), ("win", 1, None))),
    # statistics
    "Collect": Example('t.Collect(size=3, groups="sensor")', READINGS[:5]),
    "MovingAverage": Example('t.MovingAverage(by="sensor", window=2)', READINGS),
    "BoundedCount": Example('operators.BoundedCount(capacity=2)', column("value", "a", "b", "a", "c", "a")),
    "BatchOutliers": Example('operators.BatchOutliers(value="cpu", spread=1.0)', RACKS),
    "BatchSums": Example('operators.BatchSums(value="cpu")', RACKS),
    "CenterDistance": Example('operators.CenterDistance(fields=("cpu",))', RACKS),
    "ChangeDetector": Example('t.ChangeDetector(by="door", fields="open")',
        rows("door open", ("front", False), ("front", False), ("front", True), ("back", True), ("front", True))),
    "ClippedAverage": Example('t.ClippedAverage(by="sensor", window=3)',
        rows("sensor value", *(("a", v) for v in (20.0, 21.0, 20.5, 99.0, 20.0)))),
    "RunningCount": Example('t.RunningCount(by="word")', column("word", "so", "it", "so", "so")),
    "DistinctCount": Example('t.DistinctCount(by="room", field="device")',
        rows("room device", ("k", "a"), ("k", "b"), ("k", "a"), ("c", "a"), ("k", "d"))),
    "DecayingRate": Example('operators.DecayingRate(by="caller")',
        rows("event_time caller", (0, "a"), (1, "a"), (2, "a"), (30, "a"), (30, "b"))),
    "DecayedScores": Example('operators.DecayedScores(item="rack", value="cpu", decay=0.5)', RACKS),
    "ExponentialAverage": Example('t.ExponentialAverage(by="sensor", span=3)', READINGS),
    "CounterIncrease": Example('t.CounterIncrease(by="meter", per="1s")',
        rows("event_time meter value", (0, "m", 100.0), (10, "m", 130.0), (20, "m", 170.0), (30, "m", 5.0))),
    "Interpolation": Example('t.Interpolation(by="sensor", window=2)', READINGS),
    "KalmanFilter": Example('t.KalmanFilter(by="sensor")', READINGS),
    "PairDelay": Example('operators.PairDelay(by="pair", time="ts")',
        rows("pair role value ts", ("a", "cause", 1, 100), ("a", "cause", 0, 200), ("a", "effect", 0, 230), ("a", "effect", 1, 260))),
    "SortByEventTime": Example('t.SortByEventTime(allowed_lateness="3s")',
        rows("event_time value", (5, 1.0), (4, 2.0), (6, 3.0), (9, 4.0), (1, 5.0))),
    "RunningMedian": Example('operators.RunningMedian(by="sensor")',
        rows("sensor value action", ("a", 4, 1), ("a", 1, 1), ("a", 9, 1), ("a", 4, -1))),
    "RunningSummary": Example('t.RunningSummary(by="sensor")', READINGS),
    "ShareAbove": Example("operators.ShareAbove()",
        rows("event_time scope group member median count", (0, "one", 1, "a", 5.0, 1), (0, "one", 1, "b", 7.0, 1),
             (0, "one", 1, "c", 9.0, 1), (0, "all", 1, None, 6.0, 1))),
    "SliceMeans": Example('operators.SliceMeans(by="sensor", length="1min", every="30s")', TIMED),
    "SlidingTotals": Example('operators.SlidingTotals(by="word", totals={"count": None}, every="5s", slots=3)',
        rows("event_time word", (0, "so"), (1, "it"), (2, "so"), (6, "so"), (12, "it"))),
    "SlidingWindow": Example('operators.SlidingWindow(window="10s", fields=("value",))',
        rows("event_time value", (0, 4.0), (6, 1.0), (12, 7.0))),
    "SecondOrderMoment": Example('t.SecondOrderMoment(by="sensor", method="exact")',
        rows("sensor value", *(("a", v) for v in (3, 5, 3, 3, 8)))),
    "SlidingSum": Example('t.SlidingSum(by="sensor", window=2)', READINGS),
    "RunningTotals": Example('t.RunningTotals(by="shop", totals={"items": "n", "orders": None})',
        rows("shop n", ("x", 2), ("y", 1), ("x", 5))),
    "TopK": Example('operators.TopK(item="word", value="n", k=2, every="5s")',
        rows("event_time word n", (0, "so", 3), (1, "it", 5), (2, "goes", 1), (6, "so", 9))),
    "Trend": Example('operators.Trend(by="machine", window="10s")',
        rows("event_time machine value", (0, "m", 200.0), (3, "m", 201.0), (6, "m", 205.0), (20, "m", 202.0))),
    "Variance": Example('t.Variance(by="sensor", ddof=1)', READINGS),
    "WeightedAverage": Example('operators.WeightedAverage(by="stock", window=2)',
        rows("stock price volume", ("A", 10.0, 100.0), ("A", 11.0, 300.0), ("A", 12.0, 100.0))),
    "Window": Example('t.Window(by="sensor", frame="1min", aggregates={"mean": ("value", "mean"), "n": "count"})', TIMED),
    "FlagWarmUp": Example('t.FlagWarmUp(by="sensor", records=2)', READINGS),
    "PlotLines": Example('t.PlotLines(groups="sensor", series=None)',
        [{"sensor": "a", "batch_id": 0, "times": [NOON + timedelta(minutes=m) for m in range(3)], "value": [1.0, 3.0, 2.0]}]),
}  # fmt: skip

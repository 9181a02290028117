"""Write small sample files in the forms of the benchmarks' data sets, for tests: ``tests/data/samples``.

The project's own generators make the content, so that any checkout may hold it; two runs write the same bytes.
"""

from __future__ import annotations

import argparse
import bisect
import gzip
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from riot_ops.core.schema import SCHEMAS
from riot_ops.models.markov import purchase_model
from riot_ops.models.roads import grid_roads
from riot_ops.streams import CitySource, FitSource, TaxiSource
from riot_ops.streams.dspbench import (
    AdclicksSource,
    BarsSource,
    CallsSource,
    CardsSource,
    MailsSource,
    MetersSource,
    MotesSource,
    TextSource,
    TracesSource,
    TrainingMailsSource,
    TweetsSource,
    UsageSource,
    VisitsSource,
    WeblogSource,
)
from riot_ops.streams.generator import GeneratedSource
from riot_ops.streams.text_lines import TextLineSource

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "samples"
SEED = 11

#: Of each stream: prefix of its data file, its annotation table and schema file, and the annotated fields with values.
SENML = {
    "city": (
        "SYS",
        "city-metadata.txt",
        "sys-schema-with-annotationfields.txt",
        {"location": ("string", "sv"), "type": ("string", "sv")},
        (("hall", "roof", "yard"), ("heat", "solar")),
    ),
    "taxi": (
        "TAXI",
        "taxi-metadata-fulldataset.txt",
        "taxi-schema_with_annotation.csv",
        {name: ("string", "sv") for name in ("taxi_company", "drivername", "taxi_city")},
        (("north", "south"), ("ada", "bea", "cyd"), ("New Town", "Old Town")),
    ),
    "fit": (
        "FIT",
        "mhealth_annotation_mapping.csv",
        "mhealth_schema_with_annoted_fields.csv",
        {"age": ("number", "v"), "gender": ("string", "sv")},
        (("31", "47"), ("F", "M")),
    ),
}
#: Of each stream's timer: number of ticks, seconds between them, first time, step and width in milliseconds.
TIMERS = {
    "CITY": (7, 120, 1_422_748_800_000, 3_600_000, 1_000_000),
    "TAXI": (7, 120, 1_358_101_800_000, 86_400_000, 864_000),
    "FIT": (12, 60, 1_417_890_600_000, 60_000, 60_000),
    "GRID": (12, 60, 1_247_511_001_000, 60_000, 60_000),
}
#: Words and values of a lexicon; some terms are phrases or have marks in them.
LEXICON = {
    "amazing": 4, "angry": -3, "awful": -3, "bad": -2, "best": 4, "broken": -1, "can't stand": -3, "delayed": -1,
    "disaster": -4, "enjoy": 2, "fail": -2, "fantastic": 5, "fun": 3, "glad": 2, "good": 2, "great": 3, "happy": 3,
    "hate": -4, "late": -1, "lost": -2, "love": 4, "nice": 1, "no fun": -3, "noisy": -1, "not good": -2, "perfect": 3,
    "proud": 2, "sad": -2, "self-made": 1, "slow": -1, "so-so": 0, "terrible": -4, "useless": -2, "waste": -1,
    "win": 4, "worst": -4, "wrong": -2,
}  # fmt: skip
#: Networks of the generated addresses; the smallest one that holds an address counts.
NETWORKS = (
    "# cidr,country_code,country,city",
    "192.0.2.0/25,FI,Finland,Oulu",
    "192.0.2.128/25,KE,Kenya,Nakuru",
    "198.18.0.0/15,PE,Peru,",
    "198.19.0.0/16,PE,Peru,Cusco",
    "203.0.113.0/24,NZ,New Zealand,Napier",
)
#: Roll number, first name, last name, nickname and marks of each student.
STUDENTS = (
    ("11", "Ada", "Field", "ad", "91"), ("12", "Bea", "Sonne", "be", "78"), ("203", "Cyd", "Grün", "cy", "64"),
    ("204", "Dov", "Hill", "do", "55"), ("305", "Eva", "Lake", "ev", "100"),
)  # fmt: skip


def lines_of(source: TextLineSource | GeneratedSource, n: int) -> list[str]:
    """Return the first n messages of a generated stream."""
    return [line.decode() for batch in source.read({"start": 0, "end": n}) for line in batch["payload"].to_pylist()]


def text(lines: Iterable[object], end: str = "\n") -> bytes:
    """Return the lines as a file."""
    return ("\n".join(map(str, lines)) + end).encode()


def riotbench() -> Iterator[tuple[str, bytes]]:
    """Messages, annotations, timers and training rows of RIoTBench's streams."""
    messages = {
        "city": lines_of(CitySource(4, seed=13, dirt=False), 50),
        "taxi": lines_of(TaxiSource(30, seed=SEED, dirt=False), 26),
        "fit": lines_of(FitSource(1, seed=13, dirt=False), 16),  # the single subject stands
    }
    for stream, (prefix, table, header, fields, values) in SENML.items():
        schema = SCHEMAS[stream]
        # the file of taxis ends without a line break
        yield f"{prefix}_sample_data_senml.csv", text(messages[stream], "" if stream == "taxi" else "\n")
        entries = (json.loads(line.partition(",")[2])["e"] for line in messages[stream])
        ids = sorted({entry["sv"] for message in entries for entry in message if entry["n"] == schema.id_field})
        yield table, text(f"{one}:{','.join(v[i % len(v)] for v in values)}" for i, one in enumerate(ids))
        rows = (
            (*schema.columns, *fields),
            (*schema.units, *(unit for unit, _ in fields.values())),
            (*schema.kinds, *(kind for _, kind in fields.values())),
        )
        yield header, text(map(",".join, rows))
    for stream, (n, seconds, first, step, width) in TIMERS.items():
        ticks = [(i + 1, first + i * step, first + i * step + width) for i in range(n)]
        if stream == "CITY":  # the benchmark's intervals become shorter
            ticks[3:] = [(i, start, start + 100_000) for i, start, _ in ticks[3:]]
        if stream == "TAXI":  # the benchmark's file has the last tick twice
            ticks.append((n + 1, *ticks[-1][1:]))
        lines = (f"{i},{1_443_033_000 + (i - 1) * seconds},{start},{end}" for i, start, end in ticks)
        yield f"inputFileForTimerSpout-{stream}.csv", text(["msgId,timestamp,rowstart,rowend", *lines], "")
    trips = []
    for line in lines_of(TaxiSource(30, seed=SEED + 1, dirt=False), 400):
        cells = {entry["n"]: entry.get("v") for entry in json.loads(line.partition(",")[2])["e"]}
        trips.append((cells["trip_time_in_secs"], cells["trip_distance"], cells["fare_amount"]))
    yield "taxi-train-mlr.csv", text(map(",".join, trips))
    fares = sorted(float(fare) for *_, fare in trips)
    bounds = [fares[len(fares) * i // 4] for i in (1, 2, 3)]
    classes = (("BAD", "GOOD", "VERYGOOD", "EXCELLENT")[bisect.bisect(bounds, float(fare))] for *_, fare in trips)
    yield "taxi-train-dtc.csv", text(",".join((*trip, name)) for trip, name in zip(trips, classes, strict=True))
    yield "tempSAX.xml", text(students())


def students() -> Iterator[str]:
    """Yield an XML document of a class of students."""
    yield '<?xml version="1.0"?>'
    yield "<class>"
    for rollno, *cells in STUDENTS:
        yield f'    <student rollno="{rollno}">'
        for name, cell in zip(("firstname", "lastname", "nickname", "marks"), cells, strict=True):
            yield f"        <{name}>{cell}</{name}>"
        yield "    </student>"
    yield "</class>"


def files_of_dspbench() -> Iterator[tuple[str, bytes]]:
    """Files in the forms of those in DSPBench's repository."""
    yield "AFINN-111.txt", text((f"{term}\t{value}" for term, value in LEXICON.items()), "")
    yield "fraud-markov-model.txt", purchase_model().to_text().encode()
    yield "machine-usage.csv", text(lines_of(UsageSource(seed=SEED, machines=3, late=0, dirt=False), 180), "")
    bars = lines_of(BarsSource(seed=SEED, stocks=1, dirt=False), 150)
    yield "stocks.csv", text(["Symbol,Date,Open,High,Low,Close,Adj,Close,Volume", *bars])
    traces = text(lines_of(TracesSource(seed=SEED, taxis=12, late=0, dirt=False), 400))
    yield "taxi-traces.csv.gz", gzip.compress(traces, mtime=0)


def synthetic() -> Iterator[tuple[str, bytes]]:
    """Generated streams, with bad lines at fixed places."""
    choose = random.Random(SEED)
    yield "ad-clicks.tsv", text([*lines_of(AdclicksSource(seed=SEED, queries=20, ads=9, dirt=False), 160), "0\t1\t15"])
    yield "books.txt", text([*lines_of(TextSource(seed=SEED, vocabulary=30, dirt=False), 90), "", "Uma uma.", ""])
    clicks = lines_of(VisitsSource(seed=SEED, clients=60, pages=12, dirt=False), 200)
    yield "click-stream.jsonl", text([*clicks[:90], '{"ip": "192.0.2.1", "url":', *clicks[90:]])
    yield "credit-card.csv", text(lines_of(CardsSource(seed=SEED, customers=30, fraud=0.2, dirt=False), 400))
    training = lines_of(TrainingMailsSource(seed=SEED, vocabulary=60, dirt=False), 55)
    yield "emails-training.jsonl", text(training)
    yield "emails-analysis.jsonl", text(lines_of(MailsSource(seed=SEED, vocabulary=60, dirt=False), 30))
    yield "geo-table.csv", text(NETWORKS)
    log = lines_of(WeblogSource(seed=SEED, visitors=60, rate=1.0, dirt=False), 180)
    yield "http-server.log", text([*log[:50], "192.0.2.9 - - [10/Jun", *log[50:], '- - - "GET /" 200'])
    yield "machine-usage.csv", text(lines_of(UsageSource(seed=SEED + 1, machines=6, late=0, dirt=False), 360))
    yield "rl-events.csv", text(f"s{i:06d},{i + 1}" for i in range(300))
    yield (
        "rl-rewards.csv",
        text(
            f"page{page},{max(0, round(choose.gauss(20 * page + 10, 9)))}"
            for page in (choose.randint(1, 3) for _ in range(160))
        ),
    )
    yield (
        "roads-grid.csv",
        text(
            ["road_id,seq,lon,lat"]
            + [
                f"{roads.ids[road]},{i},{lon:.6f},{lat:.6f}"
                for roads in [grid_roads()]
                for road, points in roads.lines
                for i, (lon, lat) in enumerate(points[[0, 5, -1]].tolist())
            ]
        ),
    )
    motes = lines_of(MotesSource(seed=SEED, motes=4, spikes=0.03, dirt=False), 260)
    yield "sensors.dat", text([*motes[:60], motes[60][:40], *motes[61:], motes[0].replace(motes[0].split()[4], "warm")])
    meters = lines_of(MetersSource(seed=SEED, houses=2, every=60, late=0, dirt=False), 20_000)
    readings = [line for line in meters if line.split(",")[5] in "01" and line.split(",")[4] in "01"][:480]
    yield "smart-grid.csv", text(readings)
    yield "taxi-grid.csv", text(lines_of(TracesSource(seed=SEED + 1, taxis=20, late=0, dirt=False), 260))
    tweets = lines_of(TweetsSource(seed=SEED, topics=12, rate=0.05, late=0, dirt=False), 100)
    yield "tweets.jsonl", text([*tweets[:40], "no tweet", *tweets[40:80], "", '{"data": {"id": "7"}}', *tweets[80:]])
    calls = CallsSource(seed=SEED, population=40, telemarketers=2, rate=0.5, dirt=False)
    yield "voip-cdr.csv", text(lines_of(calls, 200))
    yield "ysb-ads.csv", text(["ad_id,campaign_id", *(f"{ad},{ad // 10}" for ad in range(1000))])


def samples() -> Iterator[tuple[str, bytes]]:
    """Yield the path in the folder, and content, of each file."""
    for folder, files in (
        ("riotbench", riotbench()),
        ("dspbench", files_of_dspbench()),
        ("dspbench/synthetic", synthetic()),
    ):
        for name, content in files:
            yield f"{folder}/{name}", content


def main() -> None:
    """Write all files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=FOLDER, help=f"default: {FOLDER.name} of the tests")
    folder = parser.parse_args().folder
    for name, content in samples():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()

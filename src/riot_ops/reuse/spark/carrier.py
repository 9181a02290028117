"""What brings a dataflow its records: reads the topics that it shares, and writes to its own sinks."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
import pyarrow as pa

from riot_ops.core.errors import ConnectorError, RiotError
from riot_ops.graph.nodes import ERRORS_STREAM
from riot_ops.reuse.delivery import Delivery
from riot_ops.reuse.spark.control import read_json, write_json
from riot_ops.reuse.spark.source import APART
from riot_ops.reuse.submission import Submission
from riot_ops.reuse.topic import Marker, Topic
from riot_ops.reuse.topic_source import TopicSource

__all__ = ["Carrier", "Delivered", "Wanted"]

IDLE_SECONDS = 0.5
#: About so many bytes go to the sinks in one epoch.
EPOCH_BYTES = 32 << 20


class Delivered(msgspec.Struct):
    """How far a dataflow's sinks have got: the number of the next epoch, and of the next batch of each topic."""

    name: str
    placed: dict[str, str]
    epoch: int = 0
    at: dict[str, int] = {}


class Wanted(msgspec.Struct):
    """What a dataflow wants of a topic: its own names for streams, and for steps that reject records."""

    streams: dict[str, list[str]]
    labels: dict[str, list[str]]


class Carrier:
    """Carries records of topics to the sinks of one dataflow, in a thread of its own.

    What is in an epoch is committed to the sinks, then it is noted how far that was; an epoch that was not noted comes
    again, and sinks that replace what they have of it have it once.

    Parameters
    ----------
    file : path
        Where it is noted.
    topics : mapping of str to (Topic, Wanted)
    state : Delivered
    behind_bytes : int
        A dataflow that is further behind has failed, or with ``on_slow="drop_oldest"`` loses its oldest records.
    patience_s : float
        One whose sinks take nothing for so long is not waited for.
    """

    def __init__(
        self,
        file: Path,
        submission: Submission,
        topics: Mapping[str, tuple[Topic, Wanted]],
        state: Delivered,
        news: threading.Condition,
        behind_bytes: int,
        patience_s: float,
        again: bool = False,
    ) -> None:
        self.file, self.submission, self.topics, self.state = file, submission, dict(topics), state
        self.behind_bytes, self.patience_s = behind_bytes, patience_s
        self.on_slow: str = submission.on_slow
        self.reader = ("" if self.on_slow == "block" else APART) + file.stem
        self.paused = self.given_up = False
        self._begun: float | None = None
        self.dropped: Counter[str] = Counter()
        self._news = news
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.delivery = Delivery(submission, state.epoch if again else None)
        try:
            for name, (topic, _) in self.topics.items():
                state.at[name] = max(state.at[name], topic.readers().get(self.reader, 0))
                topic.join(self.reader, state.at[name])
            write_json(file, state)
        except BaseException:
            self.delivery.halt()
            raise
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"riot_ops-to-{submission.name}")

    @staticmethod
    def noted(file: Path) -> Delivered:
        """What is noted in a file."""
        return read_json(file, Delivered)

    def start(self) -> None:
        """Begin to carry."""
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            if not self.turn():
                with self._news:
                    self._news.wait(IDLE_SECONDS)

    def turn(self) -> bool:
        """Carry what there is, up to a bound; whether there was anything."""
        with self._lock:
            if self.over:
                return False
            self._begun = time.monotonic()
            try:
                moved = self._turn()
            except RiotError as error:
                self.delivery.failures.append(error)
                self.delivery.halt()
                moved = False
            finally:
                self._begun = None
            if self.over:
                self.leave()  # nobody waits for it
            return moved

    def look(self) -> None:
        """Whoever takes nothing for too long is not waited for any more."""
        begun = self._begun
        late = begun is not None and time.monotonic() - begun > self.patience_s
        if late and self.on_slow == "block" and not self.given_up:
            self.given_up = True
            why = f"its sinks took nothing for {self.patience_s:g} s, while others waited for them"
            self.delivery.failures.append(ConnectorError(why))
            self.leave()

    @property
    def over(self) -> bool:
        """Whether no sink of it takes anything any more."""
        return self.delivery.over or self.given_up

    def _turn(self) -> bool:
        found: dict[str, list[tuple[int, Marker]]] = {}
        size = 0
        for name, (topic, wanted) in self.topics.items():
            markers = [(n, topic.marker(n)) for n in topic.batches(self.state.at[name])]
            markers = self._bounded(wanted, markers)
            for number, marker in markers:
                if size and size + marker.size > EPOCH_BYTES:
                    break
                size += self._size(wanted, marker)
                found.setdefault(name, []).append((number, marker))
        if not found:
            return False
        records = () if self.paused else [one for name in found for one in self._records(name, found[name])]
        if records:
            for stream, batch in records:
                self.delivery.write(stream, batch)
            self.delivery.commit()
            for sink in self.submission.sinks.values():
                sink.sync(self.state.epoch)
            self.state.epoch += 1
        self.state.at |= {name: markers[-1][0] + 1 for name, markers in found.items()}
        if records:
            write_json(self.file, self.state)
        self._read()
        return True

    def _read(self) -> None:
        """Let the topics go on without what has been carried."""
        if self.given_up:
            return
        for name, (topic, _) in self.topics.items():
            if topic.readers().get(self.reader) != self.state.at[name]:
                topic.join(self.reader, self.state.at[name])
                topic.trim()

    def _bounded(self, wanted: Wanted, markers: list[tuple[int, Marker]]) -> list[tuple[int, Marker]]:
        """Without the oldest where too much waits."""
        if self.on_slow == "block":
            return markers
        waiting = sum(self._size(wanted, marker) for _, marker in markers)
        while len(markers) > 1 and waiting > self.behind_bytes:
            if self.on_slow != "drop_oldest":
                raise ConnectorError(f"its sinks are {waiting:,} bytes behind")
            _, marker = markers.pop(0)
            waiting -= self._size(wanted, marker)
            for file in marker.files:
                for own in wanted.streams.get(file.stream, ()):
                    self.dropped[own] += file.rows
        return markers

    @staticmethod
    def _size(wanted: Wanted, marker: Marker) -> int:
        return sum(file.size for file in marker.files if file.stream in wanted.streams or file.stream == ERRORS_STREAM)

    def _records(self, name: str, markers: list[tuple[int, Marker]]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The records of some batches of a topic, by the dataflow's own names."""
        topic, wanted = self.topics[name]
        source = TopicSource(topic, self.reader, dict.fromkeys((*wanted.streams, ERRORS_STREAM)))
        begin, end = markers[0][0], markers[-1][0] + 1
        for split in source.splits({"batch": begin}, {"batch": end}, 1):
            for inputs in source.inputs(name, split):
                for stream, batches in inputs.items():
                    for batch in batches:
                        if stream == ERRORS_STREAM:
                            yield from self._rejected(wanted, batch)
                        else:
                            yield from ((own, batch) for own in wanted.streams[stream])

    @staticmethod
    def _rejected(wanted: Wanted, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        place = batch.schema.get_field_index("task")
        tasks = batch.column(place)
        for step in tasks.unique().to_pylist():
            for label in wanted.labels.get(step, ()):
                one = batch.filter(pa.array([task == step for task in tasks.to_pylist()]))
                names = pa.array([label] * one.num_rows, pa.string())
                yield ERRORS_STREAM, one.set_column(place, batch.schema.field(place), names)

    def waiting(self) -> int:
        """Bytes that wait to be carried."""
        if self.over:
            return 0
        found = 0
        for name, (topic, wanted) in self.topics.items():
            found += sum(self._size(wanted, topic.marker(n)) for n in topic.batches(self.state.at[name]))
        return found

    def behind(self) -> bool:
        """Whether something waits to be carried."""
        return not self.over and any(
            topic.head().batch >= self.state.at[name] for name, (topic, _) in self.topics.items()
        )

    def switch(self, name: str, topic: Topic) -> None:
        """All that it wants comes from one new topic from now on; the ones before have been carried."""
        with self._lock:
            wanted = Wanted({}, {})
            for _, one in self.topics.values():
                wanted.streams.update(one.streams)
                wanted.labels.update(one.labels)
            old, self.topics, self.state.at = self.topics, {name: (topic, wanted)}, {name: 0}
            if not self.over:
                topic.join(self.reader, 0)
            write_json(self.file, self.state)
            for before, _ in old.values():
                before.leave(self.reader)

    def pause(self, paused: bool) -> None:
        """Carry nothing any more, or what comes from now on."""
        with self._lock:
            self.paused = paused
            if not paused:
                for name, (topic, _) in self.topics.items():
                    self.state.at[name] = max(self.state.at[name], topic.head().batch + 1)

    def end(self) -> None:
        """The dataflow has gone: what is there is carried, and its sinks end, if they take anything."""
        if self.halt():
            while self.turn():
                pass
            self.delivery.close()
        self._forget()

    def halt(self) -> bool:
        """Carry nothing more for now; False where a sink keeps its thread."""
        self._stop.set()
        with self._news:
            self._news.notify_all()
        if self._thread.is_alive():
            self._thread.join(0 if self.given_up else self.patience_s)
        self.given_up |= self._thread.is_alive()
        return not self.given_up

    def close(self) -> None:
        """Let go; it can go on later from where it was."""
        if self.halt():
            self.delivery.halt()

    def give_up(self) -> None:
        """Leave nothing behind."""
        self.delivery.halt()
        self._forget()

    def _forget(self) -> None:
        self.file.unlink(missing_ok=True)
        self.leave()

    def leave(self) -> None:
        """Want nothing of the topics."""
        for topic, _ in self.topics.values():
            if topic.folder.is_dir():
                topic.leave(self.reader)

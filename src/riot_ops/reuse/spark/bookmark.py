"""How far a reader of several topics is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from riot_ops.reuse.topic import Topic

__all__ = ["Bookmark"]


class Bookmark:
    """The topics that somebody reads, each with the first batch that he has not read; the topics know of it.

    Parameters
    ----------
    reader : str
        His name among the readers of the topics.
    topics : mapping of str to Topic
        By fragment.
    at : mapping of str to int
        Where he goes on; what is gone already he has read.
    """

    def __init__(self, reader: str, topics: Mapping[str, Topic], at: Mapping[str, int]) -> None:
        self._lock = threading.Lock()
        self.reader, self.topics = reader, dict(topics)
        self.at = {name: max(at[name], topic.readers().get(reader, 0)) for name, topic in topics.items()}
        try:
            for name, topic in topics.items():
                topic.join(reader, self.at[name])
        except BaseException:
            self.leave()
            raise

    def each(self) -> list[tuple[str, Topic, int]]:
        """The topics, each with where he goes on, as they are now: others may be changing them."""
        with self._lock:
            return [(name, topic, self.at[name]) for name, topic in self.topics.items()]

    def unread(self, name: str) -> bool:
        """Whether there is anything in a topic that he has not read."""
        return self.topics[name].head().batch >= self.at[name]

    def behind(self) -> bool:
        """Whether there is anything that he has not read."""
        return any(topic.head().batch >= at for _, topic, at in self.each())

    def up_to(self, batches: Mapping[str, int]) -> bool:
        """Whether he has read these batches, of topics that he still reads."""
        return all(self.at.get(name, batch + 1) > batch for name, batch in batches.items())

    def read(self, end: Mapping[str, int]) -> None:
        """He has read up to there at least, of topics that he reads on; :meth:`release` lets the topics know."""
        with self._lock:
            known = {name: batch for name, batch in end.items() if name in self.topics}
            self.at = self.at | {name: max(batch, self.at[name]) for name, batch in known.items()}

    def release(self) -> None:
        """What he has read may go."""
        with self._lock:
            for name, topic in self.topics.items():
                if topic.readers().get(self.reader) != self.at[name]:
                    topic.join(self.reader, self.at[name])
                    topic.trim()

    def add(self, name: str, topic: Topic, at: int) -> None:
        """He reads one more, unless he does already."""
        if name not in self.topics:
            if self.reader not in topic.readers():
                topic.join(self.reader, at)
            with self._lock:
                self.at = {**self.at, name: at}
                self.topics = {**self.topics, name: topic}  # others may be looking

    def keep(self, wanted: Callable[[str], bool]) -> list[Topic]:
        """He reads only these on; returns the others, which he still has to leave."""
        with self._lock:
            gone = [topic for name, topic in self.topics.items() if not wanted(name)]
            self.topics = {name: topic for name, topic in self.topics.items() if wanted(name)}
            self.at = {name: at for name, at in self.at.items() if wanted(name)}
        return gone

    def leave(self) -> None:
        """Want nothing of the topics."""
        for topic in self.topics.values():
            if topic.folder.is_dir():
                topic.leave(self.reader)

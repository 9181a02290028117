"""From which batches on several topics give a newcomer what it needs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress

from riot_ops.core.errors import RiotError
from riot_ops.reuse.spark.cuts import starts
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.topic import Place, Topic

__all__ = ["meeting", "only", "untrimmed", "upstream"]


def meeting(
    topics: Mapping[str, Topic], since: Mapping[str, int], versions: Mapping[str, int]
) -> dict[str, tuple[int, Place]] | None:
    """For each topic a batch, with the place before it, which is one place of all; None where there is none yet.

    Parameters
    ----------
    topics : mapping of str to Topic
    since, versions : mapping of str to int
        The first batch that may be meant, and the version of the control that it must have seen.
    """
    places: dict[str, dict[int, Place]] = {}
    for name, topic in topics.items():
        head = topic.head()
        markers = {n: topic.marker(n) for n in topic.batches(since[name])}
        places[name] = {n: marker.before for n, marker in markers.items() if marker.control >= versions[name]}
        if head.control >= versions[name] and head.batch + 1 >= since[name]:
            places[name].setdefault(head.batch + 1, head.place)
    found = starts({name: sorted(one.items(), key=lambda pair: pair[0]) for name, one in places.items()})
    return None if found is None else {name: (batch, places[name][batch]) for name, batch in found.items()}


def upstream(names: Iterable[str], fragments: Mapping[str, Fragment]) -> set[str]:
    """These fragments, and those that they read."""
    found = {*names}
    for name, fragment in reversed([*fragments.items()]):  # each reads earlier ones
        if name in found:
            found.update(fragment.spec.topics)
    return found


@contextmanager
def untrimmed(names: Iterable[str], fragments: Mapping[str, Fragment]) -> Iterator[dict[str, int]]:
    """Nothing that comes to the topics of these goes meanwhile; gives by name the first batch that comes."""
    reader = f"new-{uuid.uuid4().hex}"
    since = {name: _next(fragments[name].topic) for name in names}
    try:
        for name, batch in since.items():
            fragments[name].topic.join(reader, batch)
        yield since
    finally:
        for name in since:
            with suppress(RiotError, OSError):  # the others are left all the same
                fragments[name].topic.leave(reader)


def only(readers: Set[str], fragments: Mapping[str, Fragment]) -> set[str]:
    """Have these read topics of fragments, and the fragments that do, and nobody else; returns all that do."""
    kept = {*readers, *(name for name, one in fragments.items() if one.spec.topics)}
    for fragment in fragments.values():
        for reader in fragment.topic.readers().keys() - kept:
            fragment.topic.leave(reader)
    return kept


def _next(topic: Topic) -> int:
    """The first batch that nobody can have read: some may read one before it is told that its writer is behind it."""
    return max([topic.head().batch + 1, *(n + 1 for n in topic.numbers()), *topic.readers().values()])

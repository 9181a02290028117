"""The readers of the topics of fragments."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import contextmanager, suppress

from riot_ops.core.errors import RiotError
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.topic import Topic

__all__ = ["remove_other_readers", "retained_batches", "with_upstream"]


def with_upstream(names: Iterable[str], fragments: Mapping[str, Fragment]) -> set[str]:
    """Return these fragments and all that they read, directly or through others."""
    found = {*names}
    for name, fragment in reversed([*fragments.items()]):  # each reads earlier ones
        if name in found:
            found.update(fragment.spec.topics)
    return found


@contextmanager
def retained_batches(names: Iterable[str], fragments: Mapping[str, Fragment]) -> Iterator[dict[str, int]]:
    """Keep new batches of fragments from being trimmed in this context; yields the first of each fragment."""
    reader = f"new-{uuid.uuid4().hex}"
    since = {name: _next_batch(fragments[name].topic) for name in names}
    try:
        for name, batch in since.items():
            fragments[name].topic.join(reader, batch)
        yield since
    finally:
        for name in since:
            with suppress(RiotError, OSError):  # still leave the other topics
                fragments[name].topic.leave(reader)


def remove_other_readers(readers: Set[str], fragments: Mapping[str, Fragment]) -> set[str]:
    """Remove all readers but these and the fragments that read topics; returns the readers kept."""
    kept = {*readers, *(name for name, one in fragments.items() if one.spec.topics)}
    for fragment in fragments.values():
        for reader in fragment.topic.readers().keys() - kept:
            fragment.topic.leave(reader)
    return kept


def _next_batch(topic: Topic) -> int:
    """Return the first batch that no reader can have read; a reader may read a batch before the head counts it."""
    return max([topic.head().batch + 1, *(n + 1 for n in topic.batch_numbers()), *topic.readers().values()])

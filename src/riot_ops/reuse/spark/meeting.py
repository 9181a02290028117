"""From which batches on several topics give a newcomer what it needs."""

from __future__ import annotations

from collections.abc import Mapping

from riot_ops.reuse.spark.cuts import starts
from riot_ops.reuse.topic import Place, Topic

__all__ = ["meeting"]


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
        if head.control >= versions[name]:
            places[name].setdefault(head.batch + 1, head.place)
    found = starts({name: sorted(one.items(), key=lambda pair: pair[0]) for name, one in places.items()})
    return None if found is None else {name: (batch, places[name][batch]) for name, batch in found.items()}

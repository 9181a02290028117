"""Alignment of several topics: at which batches a reader of all of them starts, and where each of its reads ends.

The topics may carry streams of one source, and some may have progressed further than others. A reader of several topics
cuts them at the same micro-batches of the queries that read the sources. So records meet as they would in one query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from riot_ops.reuse.topic import Topic, UpstreamProgress

__all__ = ["aligned_ends", "common_start", "start_batches"]


def aligned_ends(
    before: Mapping[str, UpstreamProgress], after: Mapping[str, Sequence[UpstreamProgress]]
) -> dict[str, int]:
    """Return how many batches of each topic to read next.

    Parameters
    ----------
    before : mapping of str to UpstreamProgress
        The progress of each topic so far; topics agree on the roots that they have in common.
    after : mapping of str to sequence of UpstreamProgress
        The progress of each topic after each further batch.

    Examples
    --------
    >>> a, b = [UpstreamProgress({"r": n}) for n in (1, 2, 3)], [UpstreamProgress({"r": n}) for n in (2, 4)]
    >>> aligned_ends({"a": UpstreamProgress({"r": 0}), "b": UpstreamProgress({"r": 0})}, {"a": a, "b": b})
    {'a': 2, 'b': 1}
    """
    limits = {name: _count_before_end(before[name], places) for name, places in after.items()}
    ending = {name for name, places in after.items() if places and set(places[0].ended) != set(before[name].ended)}
    if ending:  # output at the end of a source follows all other records, so its batch is read alone
        alone = _common_cut(before, after, {name: int(name in ending) for name in after})
        if any(alone.values()):
            return alone
        limits |= dict.fromkeys(ending, 0)
    found = _common_cut(before, after, limits)
    rounded = _common_cut(
        before, after, {name: _round_down(before[name], after[name][:n]) for name, n in found.items()}
    )
    return rounded if any(rounded.values()) else found


def _count_before_end(before: UpstreamProgress, places: Sequence[UpstreamProgress]) -> int:
    """Count the batches before one in which a source ends."""
    return next((i for i, place in enumerate(places) if set(place.ended) != set(before.ended)), len(places))


def _round_down(before: UpstreamProgress, places: Sequence[UpstreamProgress]) -> int:
    """Round down to the number of micro-batches with most trailing zero bits, so that all late readers stop alike."""
    if not places or not before.roots:
        return len(places)
    root = min(before.roots)
    begin, end = before.roots[root], places[-1].roots.get(root, 0)
    if end <= begin:
        return len(places)
    end &= ~((1 << ((begin ^ end).bit_length() - 1)) - 1)
    return sum(place.roots.get(root, 0) <= end for place in places)


def _common_cut(
    before: Mapping[str, UpstreamProgress],
    after: Mapping[str, Sequence[UpstreamProgress]],
    limits: Mapping[str, int],
) -> dict[str, int]:
    """Return the last cut within ``limits`` at which all topics have the same micro-batches of each root."""
    found = dict(limits)

    def roots(name: str) -> dict[str, int]:
        return (after[name][found[name] - 1] if found[name] else before[name]).roots

    while True:
        slowest: dict[str, int] = {}
        for name in found:
            for root, n in roots(name).items():
                slowest[root] = min(n, slowest.get(root, n))
        ahead = [name for name in found if any(n > slowest[root] for root, n in roots(name).items())]
        if not any(found[name] for name in ahead):
            return found
        for name in ahead:
            found[name] -= found[name] > 0


def common_start(places: Mapping[str, Sequence[tuple[int, UpstreamProgress]]]) -> dict[str, int] | None:
    """Return, by topic, the first batches from which all can be read together; None if there are none yet.

    ``places`` are, by topic, the batches from which it can be read, each with the progress of the topic before it.

    >>> p = UpstreamProgress
    >>> common_start({"a": [(7, p({"r": 3})), (8, p({"r": 4}))], "b": [(0, p({"r": 4}))]})
    {'a': 8, 'b': 0}
    """
    at = dict.fromkeys(places, 0)
    while all(at[name] < len(found) for name, found in places.items()):
        furthest: dict[str, int] = {}
        for name, i in at.items():
            for root, n in places[name][i][1].roots.items():
                furthest[root] = max(n, furthest.get(root, n))
        late = [n for n, i in at.items() if any(v < furthest[r] for r, v in places[n][i][1].roots.items())]
        if not late:
            return {name: places[name][i][0] for name, i in at.items()}
        for name in late:
            at[name] += 1
    return None


def start_batches(
    topics: Mapping[str, Topic], since: Mapping[str, int], versions: Mapping[str, int]
) -> dict[str, tuple[int, UpstreamProgress]] | None:
    """Return, by topic, the batch at which a new reader of all of them starts, and the progress before that batch.

    None if no such batches exist yet.

    Parameters
    ----------
    topics : mapping of str to Topic
    since : mapping of str to int
        The first batch that is considered.
    versions : mapping of str to int
        The version of the control that a batch must have been written with.
    """
    places: dict[str, dict[int, UpstreamProgress]] = {}
    for name, topic in topics.items():
        head = topic.head()
        markers = {n: topic.marker(n) for n in topic.batches(since[name])}
        places[name] = {n: marker.before for n, marker in markers.items() if marker.control >= versions[name]}
        if head.control >= versions[name] and head.batch + 1 >= since[name]:
            places[name].setdefault(head.batch + 1, head.place)
    found = common_start({name: sorted(one.items(), key=lambda pair: pair[0]) for name, one in places.items()})
    return None if found is None else {name: (batch, places[name][batch]) for name, batch in found.items()}

"""Up to where several topics may be read together, and from where on.

Streams of one source may come through several topics, of which some are further than others. Who reads more than one
sees them cut at the same micro-batches of the queries that read the sources, so that their records meet as they would
in one query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from riot_ops.reuse.topic import Place

__all__ = ["ends", "starts"]


def ends(before: Mapping[str, Place], after: Mapping[str, Sequence[Place]]) -> dict[str, int]:
    """How many batches of each topic are read next.

    Parameters
    ----------
    before : mapping of str to Place
        Where each topic stands now; they agree about the roots that they have in common.
    after : mapping of str to sequence of Place
        Where it stands after each further batch that is there.

    Examples
    --------
    >>> a, b = [Place({"r": n}) for n in (1, 2, 3)], [Place({"r": n}) for n in (2, 4)]
    >>> ends({"a": Place({"r": 0}), "b": Place({"r": 0})}, {"a": a, "b": b})
    {'a': 2, 'b': 1}
    """
    most = {name: _until_an_end(before[name], places) for name, places in after.items()}
    ending = {name for name, places in after.items() if places and set(places[0].ended) != set(before[name].ended)}
    if ending:  # what comes of an end comes after all else, so nothing else is read with it
        alone = _agreed(before, after, {name: int(name in ending) for name in after})
        if any(alone.values()):
            return alone
        most |= dict.fromkeys(ending, 0)
    found = _agreed(before, after, most)
    short = _agreed(before, after, {name: _rounded(before[name], after[name][:n]) for name, n in found.items()})
    return short if any(short.values()) else found


def _until_an_end(before: Place, places: Sequence[Place]) -> int:
    """How many batches there are before one in which a source ends."""
    return next((i for i, place in enumerate(places) if set(place.ended) != set(before.ended)), len(places))


def _rounded(before: Place, places: Sequence[Place]) -> int:
    """To the roundest number of micro-batches: so all that are behind stop at the same ones."""
    if not places or not before.roots:
        return len(places)
    root = min(before.roots)
    begin, end = before.roots[root], places[-1].roots.get(root, 0)
    if end <= begin:
        return len(places)
    end &= ~((1 << ((begin ^ end).bit_length() - 1)) - 1)
    return sum(place.roots.get(root, 0) <= end for place in places)


def _agreed(
    before: Mapping[str, Place], after: Mapping[str, Sequence[Place]], most: Mapping[str, int]
) -> dict[str, int]:
    """The furthest cut at which all have the same micro-batches of each root."""
    found = dict(most)

    def roots(name: str) -> dict[str, int]:
        return (after[name][found[name] - 1] if found[name] else before[name]).roots

    while True:
        least: dict[str, int] = {}
        for name in found:
            for root, n in roots(name).items():
                least[root] = min(n, least.get(root, n))
        ahead = [name for name in found if any(n > least[root] for root, n in roots(name).items())]
        if not any(found[name] for name in ahead):
            return found
        for name in ahead:
            found[name] -= found[name] > 0


def starts(places: Mapping[str, Sequence[tuple[int, Place]]]) -> dict[str, int] | None:
    """The first batches from which several topics can be read together, by topic; None where there are none yet.

    ``places`` are the batches from which each may be read, with where it stands before.

    >>> starts({"a": [(7, Place({"r": 3})), (8, Place({"r": 4}))], "b": [(0, Place({"r": 4}))]})
    {'a': 8, 'b': 0}
    """
    at = dict.fromkeys(places, 0)
    while all(at[name] < len(found) for name, found in places.items()):
        most: dict[str, int] = {}
        for name, i in at.items():
            for root, n in places[name][i][1].roots.items():
                most[root] = max(n, most.get(root, n))
        behind = [n for n, i in at.items() if any(v < most[r] for r, v in places[n][i][1].roots.items())]
        if not behind:
            return {name: places[name][i][0] for name, i in at.items()}
        for name in behind:
            at[name] += 1
    return None

"""Which small files of a stream are joined into one, and which files a joined one replaces."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from riot_ops.core.errors import ConnectorError

__all__ = [
    "CommittedFile",
    "JoinedFile",
    "check_joined",
    "compaction_groups",
    "files_changed",
    "first_open_batch",
    "joined_name",
    "joined_span",
    "superseded",
    "superseded_by_folder",
]

#: Batches at the end of an output that a run which continues may write again: that after its checkpoint, and one more
#: if it continues from the checkpoint before.
OPEN_BATCHES = 2


class CommittedFile(NamedTuple):
    """A file of a stream, with the number of its batch and where it is."""

    batch: int
    size: int
    place: Any


class JoinedFile(NamedTuple):
    """Files that become one, and the first batch that is in it; its last batch is that of the last file.

    Batches without records count with those after them.
    """

    first: int
    files: list[CommittedFile]


def joined_name(first: int, last: int, suffix: str, token: str = "") -> str:
    """Return the name of the file for all records of these batches.

    >>> joined_name(0, 12, "csv"), joined_name(0, 12, "csv", "9f2c")
    ('part-000012-joined-000000.csv', 'part-000012-joined-000000-9f2c.csv')
    """
    return f"part-{last:06d}-joined-{first:06d}{f'-{token}' if token else ''}.{suffix}"


def compaction_groups(
    files: Sequence[CommittedFile], target_bytes: int, until: int, form_of: Callable[[Any], object]
) -> list[JoinedFile]:
    """Group the files of one stream, whose batches are below ``until``, into such of about ``target_bytes``.

    Files of one batch stay together, files of another form (``form_of``) apart.

    >>> files = [CommittedFile(batch, 40, f"f{batch}") for batch in (0, 1, 4, 5, 6)]
    >>> [(one.first, [file.place for file in one.files]) for one in compaction_groups(files, 100, 6, lambda _: None)]
    [(0, ['f0', 'f1']), (2, ['f4', 'f5'])]
    """
    batches: dict[int, list[CommittedFile]] = {}
    for file in sorted(files, key=lambda file: file.batch):
        batches.setdefault(file.batch, []).append(file)
    groups: list[JoinedFile] = []
    size, form, before = 0, None, -1
    for batch, members in batches.items():
        if batch >= until:
            break
        added, own = sum(file.size for file in members), form_of(members[0].place)
        if groups and size + added <= target_bytes and own == form:
            groups[-1].files.extend(members)
            size += added
        else:
            groups.append(JoinedFile(before + 1, list(members)))
            size, form = added, own
        before = batch
    return [group for group in groups if len(group.files) > 1]


def first_open_batch(batches: Iterable[int]) -> int:
    """Return the first batch that a run which continues may write again.

    >>> first_open_batch([0, 1, 1, 2, 5]), first_open_batch([3])
    (2, 3)
    """
    return min(sorted(set(batches))[-OPEN_BATCHES:], default=0)


def files_changed(groups: Sequence[JoinedFile]) -> dict[str, int]:
    """Count what was joined, in the words of Delta."""
    return {"numFilesAdded": len(groups), "numFilesRemoved": sum(len(group.files) for group in groups)}


def superseded_by_folder(paths: Iterable[Path]) -> set[Path]:
    """Return the files that do not count in their folders, see :func:`superseded`."""
    names: dict[Path, list[str]] = {}
    for path in paths:
        names.setdefault(path.parent, []).append(path.name)
    return {folder / name for folder, found in names.items() for name in superseded(found)}


def superseded(names: Sequence[str]) -> set[str]:
    """Return the files that do not count, because a joined one has their records and they are not yet removed.

    >>> sorted(superseded(["part-000003-joined-000001.csv", "part-000001-00000.csv", "part-000004-00000.csv"]))
    ['part-000001-00000.csv']
    """
    ranges = [(*span, name) for name in names if (span := joined_span(name)) is not None]
    if not ranges:
        return set()
    listed = [(int(found[1]), name) for name in names if (found := re.match(r"part-(\d+)-", name))]
    return {
        name
        for number, name in listed
        for first, last, joined in ranges
        if first <= number <= last and name != joined and (joined_span(name) or (number, number))[0] >= first
    }


def check_joined(batch: int, spans: Iterable[tuple[object, int, int]]) -> None:
    """Raise a ConnectorError if a file, given with its first and last batch, has records of and before a batch."""
    for place, first, last in spans:
        if first < batch <= last:
            raise ConnectorError(
                f"the run continues with batch {batch}, but the file {place} holds the batches {first} to {last}, "
                "which were joined: continue from the newest checkpoint, or write to another folder"
            )


def joined_span(name: str) -> tuple[int, int] | None:
    """Return the first and the last batch in a joined file, by its name; None for another file."""
    found = re.match(r"part-(\d+)-joined-(\d+)[-.]", name)
    return (int(found[2]), int(found[1])) if found else None

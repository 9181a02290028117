"""Sources and sinks of dataflows that come, opened before anything changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from riot_ops.reuse.backend import Coming
from riot_ops.reuse.outlet import Outlet, Stood
from riot_ops.reuse.outlets import Outlets
from riot_ops.reuse.reading import Reading, Readings, Wanted

__all__ = ["Opened", "begun"]

#: What has been opened: readings by key, and of each dataflow which it needs, and its outlet.
Opened = tuple[dict[str, Reading], list[Wanted], list[Outlet]]


@contextmanager
def begun(
    coming: Sequence[Coming],
    readings: Readings,
    outlets: Outlets,
    places: Mapping[str, Stood] | None = None,
    kept: Mapping[str, str] | None = None,
) -> Iterator[Opened]:
    """Open what dataflows need beside these readings and outlets; let go of it where they do not come.

    After a restart it is told where the sinks of each stood (``places``), and by step which reading it had (``kept``).
    """
    made: list[Outlet] = []
    fresh: dict[str, Reading] = {}
    try:
        fresh, wanted = readings.begun(coming, (one.submission for one in outlets.of.values()), kept)
        for _, submission in coming:
            made.append(outlets.begun(submission, None if places is None else places[submission.name]))
        yield fresh, wanted, made
    except BaseException:
        for outlet in made:
            if outlets.of.get(outlet.submission.name) is not outlet:
                outlet.delivery.halt()
        for key, reading in fresh.items():
            if readings.of.get(key) is not reading:
                reading.close()
        raise

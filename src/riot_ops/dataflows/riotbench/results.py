"""What STATS and PRED do with their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from riot_ops import tasks as t
from riot_ops.dataflow import Stream

__all__ = ["published"]


def published(results: Sequence[Stream], publish: Mapping[str, object] | None) -> list[Stream]:
    """The results, published as JSON where parameters of :class:`riot_ops.tasks.MqttPublish` are given."""
    if publish is None:
        return list(results)
    return [
        one.to(t.MqttPublish(**{"payload": None, **publish}), id=f"publish_{one.id}")  # type: ignore[arg-type]
        for one in results
    ]

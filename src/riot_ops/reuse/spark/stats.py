"""Statistics of a back end's queries and of the sinks that they feed."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from riot_ops.reuse.spark.dispatcher_pool import DispatcherPool
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.spark.subscriber import Subscriber

__all__ = ["backend_stats"]


def backend_stats(
    fragments: Mapping[str, Fragment],
    subscribers: Mapping[str, Subscriber],
    dispatchers: DispatcherPool,
    known: Container[str],
    failure: Callable[[str], str | None],
) -> dict[str, Any]:
    """See :meth:`~riot_ops.reuse.spark.backend.FragmentsBackend.stats`; ``known`` are the steps in use."""
    failed = {}
    for name, subscriber in subscribers.items():
        causes = subscriber.causes()
        causes += [cause for one in subscriber.subscriptions if (cause := failure(one)) is not None]
        if causes:
            failed[name] = "; ".join(dict.fromkeys(causes))
    pending = dispatchers.pending_bytes()
    return {
        "fragments": len(fragments),
        "idle": sum(step not in known for fragment in fragments.values() for step in fragment.spec.nodes),
        "queries": sum(fragment.active for fragment in fragments.values()),
        "readings": sum(len(fragment.spec.sources) for fragment in fragments.values()),
        "rows": {name: one.writer.rows for name, one in subscribers.items()},
        "dropped": {name: lost for name, one in subscribers.items() if (lost := one.lost_records())},
        "slow": {name: pending[name] for name in subscribers if pending.get(name)},
        "unread_bytes": {name: fragment.topic.unread_bytes() for name, fragment in fragments.items()},
        "restarts": {name: one.restarts for name, one in subscribers.items() if one.restarts},
        "failed": failed,
    }

"""What a back end tells of its queries and of the sinks that they feed."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

from riot_ops.reuse.spark.carriers import Carriers
from riot_ops.reuse.spark.fragment import Fragment
from riot_ops.reuse.spark.recipient import Recipient

__all__ = ["figures"]


def figures(
    fragments: Mapping[str, Fragment],
    recipients: Mapping[str, Recipient],
    carriers: Carriers[Any],
    known: Container[str],
    failure: Callable[[str], str | None],
) -> dict[str, Any]:
    """See :meth:`~riot_ops.reuse.spark.backend.FragmentsBackend.stats`; ``known`` are the steps that somebody wants."""
    heads = [fragment.topic.head() for fragment in fragments.values()]
    failed = {}
    for name, recipient in recipients.items():
        causes = recipient.failures
        causes += [cause for one in recipient.wanted if (cause := failure(one)) is not None]
        if causes:
            failed[name] = "; ".join(dict.fromkeys(causes))
    waiting = carriers.waiting()
    return {
        "fragments": len(fragments),
        "idle": sum(step not in known for fragment in fragments.values() for step in fragment.spec.nodes),
        "queries": sum(fragment.active for fragment in fragments.values()),
        "readings": sum(len(fragment.spec.sources) for fragment in fragments.values()),
        "records": {step: n for head in heads for step, n in head.taken.items()},
        "rows": {name: one.delivery.rows for name, one in recipients.items()},
        "dropped": {name: missed for name, one in recipients.items() if (missed := one.missed())},
        "slow": {name: waiting[name] for name in recipients if waiting.get(name)},
        "unread_bytes": {name: fragment.topic.unread() for name, fragment in fragments.items()},
        "restarts": {name: one.restarts for name, one in recipients.items() if one.restarts},
        "failed": failed,
    }

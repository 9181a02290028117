"""What STATS and PRED have in common: their forms, and what they do with their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.dataflow import Stream

__all__ = ["GATHERED", "PAPER_WINDOW", "WINDOW", "ZIPPED", "check_form", "published", "publisher", "stored"]

#: Values per average: in the paper's sliding one, about 15 minutes of a sensor, where it is not the usual one.
PAPER_WINDOW, WINDOW = {"city": 90}, 10
#: Results per set of charts, and charts per archive.
GATHERED = {"city": 20, "taxi": 10, "fit": 20, "grid": 8000}
ZIPPED = {"city": 100, "taxi": 10, "fit": 10, "grid": 50}


def check_form(form: str, **options: Mapping[str, object]) -> None:
    """Refuse options that another form has; ``options`` gives those of each, None if not set."""
    for owner, given in options.items():
        for name, value in given.items():
            if owner != form and value is not None:
                raise ConfigError(f"{name} is for form={owner!r}, got {value!r} with form={form!r}")


def published(results: Sequence[Stream], publish: Mapping[str, object] | None) -> list[Stream]:
    """The results, published as JSON where parameters of :class:`riot_ops.tasks.PublishMQTT` are given."""
    if publish is None:
        return list(results)
    return [one.to(publisher(publish, payload=None), id=f"publish_{one.id}") for one in results]


def publisher(publish: Mapping[str, object], **usual: object) -> t.PublishMQTT:
    """The task of the parameters that a builder was given, above those that are usual there."""
    try:
        return t.PublishMQTT(**{**usual, **publish})  # type: ignore[arg-type]
    except TypeError as error:  # it names parameters, not their values, of which one is a password
        raise ConfigError(f"publish must hold the parameters of PublishMQTT: {error}") from None


def stored(charts: Stream, store: str | None, size: int) -> Stream:
    """Charts packed into archives of so many and put into a store, where one is given."""
    if store is None:
        return charts
    packed = charts.to_single().to(t.ZipToStore(size=size, prefix="charts"), id="zip")
    return packed.to(t.UploadBlob(store=store), id="upload")

"""Output steps of the applications: publish results, and archive and store charts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError
from riot_ops.dataflow import Stream

__all__ = [
    "CHARTS_PER_ARCHIVE",
    "PAPER_WINDOW",
    "RESULTS_PER_CHART_SET",
    "WINDOW",
    "check_form",
    "publish_results",
    "publish_task",
    "store_charts",
]

#: Values per average: in the paper's form by stream (CITY: about 15 minutes of a sensor), and by default.
PAPER_WINDOW, WINDOW = {"city": 90}, 10
#: By stream, results per set of charts and charts per archive.
RESULTS_PER_CHART_SET = {"city": 20, "taxi": 10, "fit": 20, "grid": 8000}
CHARTS_PER_ARCHIVE = {"city": 100, "taxi": 10, "fit": 10, "grid": 50}


def check_form(form: str, **options: Mapping[str, object]) -> None:
    """Refuse options of another form; ``options`` has the options of each form, None where they are not set."""
    for owner, values in options.items():
        for name, value in values.items():
            if owner != form and value is not None:
                raise ConfigError(f"{name} is for form={owner!r}, got {value!r} with form={form!r}")


def publish_results(results: Sequence[Stream], publish: Mapping[str, object] | None) -> list[Stream]:
    """Publish the results as JSON if ``publish`` has the parameters of :class:`riot_ops.tasks.PublishMQTT`."""
    if publish is None:
        return list(results)
    return [one.to(publish_task(publish, payload=None), id=f"publish_{one.id}") for one in results]


def publish_task(publish: Mapping[str, object], **defaults: object) -> t.PublishMQTT:
    """Build the publishing task from the parameters given to a builder, which override its defaults."""
    try:
        return t.PublishMQTT(**{**defaults, **publish})  # type: ignore[arg-type]
    except TypeError as error:  # the message names parameters, not their values, which may be secret
        raise ConfigError(f"publish must hold the parameters of PublishMQTT: {error}") from None


def store_charts(charts: Stream, store: str | None, size: int) -> Stream:
    """Pack charts into archives of ``size`` charts and upload them, if a store is given."""
    if store is None:
        return charts
    packed = charts.to_single().to(t.Zip(size=size, prefix="charts"), id="zip")
    return packed.to(t.UploadBlob(store=store), id="upload")

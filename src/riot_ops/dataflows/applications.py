"""Catalogue of the applications: codes, builders, inputs and results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from riot_ops.core.errors import ConfigError, did_you_mean
from riot_ops.dataflow import Dataflow
from riot_ops.dataflows.dspbench.ads_analytics import ads_analytics
from riot_ops.dataflows.dspbench.bargain_index import bargain_index
from riot_ops.dataflows.dspbench.click_analytics import click_analytics
from riot_ops.dataflows.dspbench.fraud_detection import fraud_detection
from riot_ops.dataflows.dspbench.log_processing import log_processing
from riot_ops.dataflows.dspbench.machine_outlier import machine_outlier
from riot_ops.dataflows.dspbench.reinforcement_learner import reinforcement_learner
from riot_ops.dataflows.dspbench.sentiment_analysis import sentiment_analysis
from riot_ops.dataflows.dspbench.smart_grid import smart_grid
from riot_ops.dataflows.dspbench.spam_filter import spam_filter
from riot_ops.dataflows.dspbench.spike_detection import spike_detection
from riot_ops.dataflows.dspbench.traffic_monitoring import traffic_monitoring
from riot_ops.dataflows.dspbench.trending_topics import trending_topics
from riot_ops.dataflows.dspbench.voip_stream import voip_stream
from riot_ops.dataflows.dspbench.word_count import word_count
from riot_ops.dataflows.dspbench.yahoo_streaming import yahoo_streaming
from riot_ops.dataflows.neptune.equipment_monitoring import equipment_monitoring
from riot_ops.dataflows.riotbench.etl import etl
from riot_ops.dataflows.riotbench.pred import pred
from riot_ops.dataflows.riotbench.stats import stats
from riot_ops.dataflows.riotbench.train import train
from riot_ops.dataflows.streambench.distinct import distinct
from riot_ops.dataflows.streambench.grep import grep
from riot_ops.dataflows.streambench.identity import identity
from riot_ops.dataflows.streambench.projection import projection
from riot_ops.dataflows.streambench.sample import sample
from riot_ops.dataflows.streambench.statistics import statistics
from riot_ops.dataflows.streambench.threat import threat
from riot_ops.dataflows.streambench.wordcount import wordcount

__all__ = ["APPLICATIONS", "BUILDERS", "FORMS", "RIOTBENCH", "Application", "application"]


@dataclass(frozen=True)
class Application:
    """An application of one of the suites.

    Parameters
    ----------
    code : str
        Short name.
    suite : str
        ``riotbench``, ``dspbench``, ``neptune`` or ``streambench``.
    builder : function
        Builds the dataflow.
    inputs : mapping of str to str
        By source, the generated stream that feeds it; the applications of RIoTBench accept any of its streams.
    results : mapping of str to tuple of str
        By result stream, the fields that it has in all versions, besides ``seq`` and ``event_time``.
    files : tuple of str
        Parameters of the builder that name a file which the application reads besides its streams.
    shared_file : bool
        Whether all of its sources read the same messages.
    optional_inputs : mapping of str to str
        The same for sources that the application only has with other than the default parameters.

    Examples
    --------
    >>> from riot_ops.dataflows import APPLICATIONS
    >>> stats = APPLICATIONS["stats"]
    >>> stats.code, stats.suite, stats.builder().name
    ('stats', 'riotbench', 'stats')
    """

    code: str
    suite: str
    builder: Callable[..., Dataflow]
    inputs: Mapping[str, str] = field(default_factory=dict)
    results: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    shared_file: bool = False
    optional_inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The builder's name."""
        return self.builder.__name__

    @property
    def purpose(self) -> str:
        """Summary line of the builder's docstring, without its verb."""
        return (self.builder.__doc__ or "").partition("\n")[0].removeprefix("Build ")


#: All applications by name.
APPLICATIONS: dict[str, Application] = {
    one.name: one
    for one in (
        Application("etl", "riotbench", etl),
        Application("stats", "riotbench", stats),
        Application("pred", "riotbench", pred),
        Application("train", "riotbench", train),
        Application("wc", "dspbench", word_count, {"lines": "text"}, {"counts": ("word", "count")}),
        Application(
            "mo",
            "dspbench",
            machine_outlier,
            {"usage": "usage"},
            {"alerts": ("machine_id", "stream_score", "timestamp", "instance_score")},
        ),
        Application(
            "lp",
            "dspbench",
            log_processing,
            {"log": "weblog"},
            {
                "volume": ("minute", "count"),
                "status": ("response", "count"),
                "countries": ("country", "country_total", "city", "city_total"),
            },
            files=("geo",),
        ),
        Application(
            "sa",
            "dspbench",
            sentiment_analysis,
            {"tweets": "tweets"},
            {"sentiment": ("id", "sentiment", "score")},
            files=("lexicon",),
        ),
        Application(
            "tm",
            "dspbench",
            traffic_monitoring,
            {"traces": "traces"},
            {"speeds": ("road_id", "average_speed", "count")},
            files=("roads",),
        ),
        Application(
            "sf",
            "dspbench",
            spam_filter,
            {"training": "mails_training", "analysis": "mails"},
            {"results": ("id", "spam_probability", "is_spam")},
            files=("table",),
        ),
        Application(
            "tt",
            "dspbench",
            trending_topics,
            {"tweets": "tweets"},
            {"rankings": ("tick_time", "rank", "topic", "count")},
        ),
        Application(
            "ca",
            "dspbench",
            click_analytics,
            {"clicks": "visits"},
            {
                "visits": ("total_count", "total_unique"),
                "locations": ("country", "country_total", "city", "city_total"),
            },
            files=("geo",),
        ),
        Application(
            "fd",
            "dspbench",
            fraud_detection,
            {"cards": "cards"},
            {"outliers": ("entity_id", "score", "states")},
            files=("model",),
        ),
        Application(
            "sd",
            "dspbench",
            spike_detection,
            {"sensors": "motes"},
            {"spikes": ("device_id", "value", "moving_average")},
        ),
        Application(
            "bi",
            "dspbench",
            bargain_index,
            {"trades": "bars", "quotes": "bars"},
            {"bargains": ("stock", "price", "volume", "bargain_index")},
            shared_file=True,
        ),
        Application(
            "rl",
            "dspbench",
            reinforcement_learner,
            {"events": "rounds", "rewards": "earnings"},
            {"actions": ("event_id", "action")},
        ),
        Application(
            "sm",
            "dspbench",
            smart_grid,
            {"readings": "meters"},
            {
                "outliers": ("window_start", "window_end", "house_id", "percentage"),
                "predictions": ("timestamp", "house_id", "household_id", "plug_id", "predicted_load"),
            },
        ),
        Application(
            "vs",
            "dspbench",
            voip_stream,
            {"calls": "calls"},
            {"scores": ("caller", "timestamp", "score", "fofir", "url", "acd")},
        ),
        Application(
            "ad",
            "dspbench",
            ads_analytics,
            {"clicks": "adclicks", "impressions": "adclicks"},
            {"ctr": ("query_id", "ad_id", "ctr", "impressions", "clicks")},
            shared_file=True,
        ),
        Application(
            "ysb",
            "dspbench",
            yahoo_streaming,
            {"events": "adverts"},
            {"campaigns": ("window_start", "campaign_id", "count")},
            files=("ads",),
        ),
        Application(
            "equipment",
            "neptune",
            equipment_monitoring,
            {"readings": "equipment"},
            {
                "delays": ("pair", "ts", "delay"),
                "alarms": ("pair", "ts", "delay"),
                "monitor": ("pair", "ts", "count", "mean", "min", "max", "slope", "alarm"),
            },
        ),
        Application("identity", "streambench", identity, {"lines": "searches"}, {"records": ("payload",)}),
        Application("sample", "streambench", sample, {"lines": "searches"}, {"records": ("payload",)}),
        Application("projection", "streambench", projection, {"lines": "searches"}, {"values": ("value",)}),
        Application("grep", "streambench", grep, {"lines": "searches"}, {"matches": ("payload",)}),
        Application("wordcount", "streambench", wordcount, {"lines": "searches"}, {"counts": ("word", "count")}),
        Application("distinct", "streambench", distinct, {"lines": "searches"}, {"sizes": ("value", "count")}),
        Application(
            "statistics",
            "streambench",
            statistics,
            {"lines": "packets"},
            {"figures": ("count", "min", "max", "sum", "mean")},
        ),
        Application(
            "threat",
            "streambench",
            threat,
            {"flows": "flows"},
            {"threats": ("src", "dst", "class", "class_index", "class_probability")},
            files=("model",),
            optional_inputs={"packets": "traffic"},
        ),
    )
}

#: The forms of an application, the default first.
FORMS: dict[str, tuple[str, ...]] = {"stats": ("paper", "plots"), "pred": ("publish", "paper")}

#: The builders of RIoTBench by name.
RIOTBENCH: dict[str, Callable[..., Dataflow]] = {
    name: one.builder for name, one in APPLICATIONS.items() if one.suite == "riotbench"
}


def _builders_by_label() -> Iterator[tuple[str, Callable[..., Dataflow]]]:
    for one in APPLICATIONS.values():
        yield one.name, one.builder
        yield one.code, one.builder


#: All builders by name and by code.
BUILDERS: dict[str, Callable[..., Dataflow]] = dict(_builders_by_label())


def application(label: str) -> Application:
    """Find an application by name or code, ignoring case.

    >>> application("WC").name
    'word_count'
    """
    known = BUILDERS.get(label.lower())
    if known is None:
        raise ConfigError(
            f"unknown application {label!r}; known are {', '.join(BUILDERS)}{did_you_mean(label, BUILDERS)}"
        )
    return APPLICATIONS[known.__name__]

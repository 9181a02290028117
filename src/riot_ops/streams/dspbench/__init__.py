"""The streams of DSPBench, generated in the formats of its data sets."""

from riot_ops.streams.dspbench.adclicks import AdclicksSource
from riot_ops.streams.dspbench.adverts import AdvertsSource
from riot_ops.streams.dspbench.bars import BarsSource
from riot_ops.streams.dspbench.calls import CallsSource
from riot_ops.streams.dspbench.cards import CardsSource
from riot_ops.streams.dspbench.equipment import EquipmentSource
from riot_ops.streams.dspbench.mails import MailsSource, TrainingMailsSource
from riot_ops.streams.dspbench.meters import MetersSource
from riot_ops.streams.dspbench.motes import MotesSource
from riot_ops.streams.dspbench.rounds import EarningsSource, RoundsSource
from riot_ops.streams.dspbench.text import TextSource
from riot_ops.streams.dspbench.traces import TracesSource
from riot_ops.streams.dspbench.tweets import TweetsSource
from riot_ops.streams.dspbench.usage import UsageSource
from riot_ops.streams.dspbench.visits import VisitsSource
from riot_ops.streams.dspbench.weblog import WeblogSource

__all__ = [
    "AdclicksSource",
    "AdvertsSource",
    "BarsSource",
    "CallsSource",
    "CardsSource",
    "EarningsSource",
    "EquipmentSource",
    "MailsSource",
    "MetersSource",
    "MotesSource",
    "RoundsSource",
    "TextSource",
    "TracesSource",
    "TrainingMailsSource",
    "TweetsSource",
    "UsageSource",
    "VisitsSource",
    "WeblogSource",
]

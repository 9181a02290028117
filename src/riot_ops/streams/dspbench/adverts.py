"""Events around advertisements, as the Yahoo streaming benchmark makes them."""

from __future__ import annotations

import functools
from typing import ClassVar

import numpy as np
import pyarrow as pa

from riot_ops.core.parameters import as_timedelta
from riot_ops.ingest.line_time import LineTime
from riot_ops.streams.parameters import Count, Flag, NonNegativeDuration, Positive, Share
from riot_ops.streams.text_lines import Numbers, TextLineSource, join_cells

__all__ = ["ADS_PER_CAMPAIGN", "AdvertsSource", "campaigns"]

ADS_PER_CAMPAIGN = 10
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("purchase", "click", "view")
#: Bad lines, by the number of the draw.
BROKEN = ('{"ad_id": "', "", '{"event_type": "view"}', '{"ad_id": "0", "event_type": "view", "event_time": "now"}')


@functools.cache
def campaigns(n: int = 100) -> dict[str, str]:
    """Return the campaign of each advertisement; each campaign has ten.

    >>> campaigns()["999"], len(campaigns(3))
    ('99', 30)
    """
    return {str(ad): str(ad // ADS_PER_CAMPAIGN) for ad in range(n * ADS_PER_CAMPAIGN)}


class AdvertsSource(TextLineSource):
    """Views, clicks and purchases around advertisements, as lines of JSON with times in ms.

    Advertisements, their kinds and the kinds of events take turns, so that every third event is a view, the third
    first; users and pages are drawn, from as many as there are advertisements and from a tenth of that.

    Parameters
    ----------
    messages : int or None, default None
        Number of events; None: without end.
    seed : int, default 0
    campaigns : int, >= 1, default 100
        Number of campaigns, of ten advertisements each.
    rate : float, > 0, default 1000
        Events per second of stream time.
    late : float, 0 to 1, default 0
        Share of events whose time lies up to ``max_delay`` back.
    max_delay : timedelta >= 0 or text such as "10s", default "5s"
    dirt : bool, default False
        0.1 % of the lines are no events.

    Shapes and rates
    ----------------
    A line has about 165 bytes.

    Examples
    --------
    >>> next(AdvertsSource(messages=3).read({"start": 2, "end": 3}))["payload"][0].as_py()[:72]
    b'{"user_id": "576", "page_id": "51", "ad_id": "2", "ad_type": "sponsored-'
    """

    stream: ClassVar[str] = "adverts"
    domain: ClassVar[str] = "events around advertisements"
    line_time: ClassVar[LineTime | None] = LineTime(
        r'(?P<before>.*"event_time": ")(?P<time>\d+)(?P<after>".*)',
        "ms",
    )

    campaigns: Count = 100
    rate: Positive = 1000.0
    late: Share = 0.0
    max_delay: NonNegativeDuration = "5s"
    dirt: Flag = False

    @property
    def gap_ms(self) -> float:  # type: ignore[override]
        return 1000.0 / self.rate

    def lines(self, numbers: Numbers) -> pa.Array:
        ads = self.campaigns * ADS_PER_CAMPAIGN
        times = self.start_ms + np.floor(numbers * self.gap_ms).astype(np.int64)
        if self.late:
            back = np.floor(self.uniforms(4, numbers) * as_timedelta(self.max_delay).total_seconds() * 1000).astype(
                np.int64
            )
            times -= np.where(self.uniforms(3, numbers) < self.late, back, 0)
        kinds = pa.array(AD_TYPES).take(pa.array(numbers % len(AD_TYPES)))
        events = pa.array(EVENT_TYPES).take(pa.array(numbers % len(EVENT_TYPES)))
        lines = join_cells(
            '{"user_id": "', (self.random_words(1, numbers) % np.uint64(ads)).astype(np.int64),
            '", "page_id": "', (self.random_words(2, numbers) % np.uint64(self.campaigns)).astype(np.int64),
            '", "ad_id": "', numbers % ads, '", "ad_type": "', kinds, '", "event_type": "', events,
            '", "event_time": "', times, '", "ip_address": "255.255.255.255"}', separator="",
        )  # fmt: skip
        if not self.dirt:
            return lines
        broken = self.random_words(5, numbers)
        wrong = pa.array(BROKEN).take(pa.array((broken % np.uint64(len(BROKEN))).astype(np.int64)))
        return pa.compute.if_else(pa.array(broken < np.uint64(2**64 // 1000)), wrong, lines)

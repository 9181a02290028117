"""The messages of an MQTT broker as the input of ``riot-ops run --mqtt``."""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

import pyarrow as pa

from riot_ops import tasks as t
from riot_ops.cli.feed import Feed
from riot_ops.connectors import MQTTSource
from riot_ops.core.errors import ConfigError
from riot_ops.core.secret import Secret
from riot_ops.core.source import Source

__all__ = ["DEFAULT_TOPIC", "MQTTFeed", "split_login"]

DEFAULT_TOPIC = "#"


def split_login(url: str) -> tuple[str, str | None, Secret | None]:
    """Split the address of a broker into one without a login, the user, and the password.

    >>> split_login("mqtts://me:p%40ss@host:8883")
    ('mqtts://host:8883', 'me', Secret('***'))
    """
    try:
        parts = urlsplit(url)
        login, _, place = parts.netloc.rpartition("@")
    except ValueError:  # its text may show the password
        raise ConfigError("--mqtt must be an address such as mqtt://host:1883") from None
    user, _, password = login.partition(":")
    return (
        urlunsplit(parts._replace(netloc=place)),
        unquote(user) or None,
        Secret(unquote(password)) if password else None,
    )


@dataclass
class MQTTFeed(Feed):
    """Messages of a broker, which have no end unless ``limit`` is given.

    ``folder`` is the folder of the results: it holds the spool, and its path names the client.
    """

    url: str = ""
    topics: tuple[str, ...] = ()
    username: str | None = None
    password: Secret | None = None
    ca_file: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    client_id: str | None = None
    limit: int | None = None
    folder: Path = Path()

    def __post_init__(self) -> None:
        super().__post_init__()
        place = f"{socket.gethostname()}:{self.folder.absolute()}"
        self._messages = MQTTSource(
            url=self.url,
            topics=self.topics or (DEFAULT_TOPIC,),
            username=self.username,
            password=self.password,
            ca_file=self.ca_file,
            certificate=self.certificate,
            private_key=self.private_key,
            client_id=self.client_id or f"riot-ops-{hashlib.blake2b(place.encode(), digest_size=6).hexdigest()}",
            spool=str(self.folder / "mqtt"),
            messages=self.limit,
        )

    def source(self, *, paced: bool) -> Source:
        return self._messages

    def describe(self) -> str:
        return f"the topics {', '.join(self._messages.topics)} of {self._messages.broker}"

    def total(self) -> int | None:
        return self.limit

    def first(self, n: int) -> pa.RecordBatch | None:
        """Return generated messages of the stream, since those of the broker have not come yet."""
        return Feed(self.stream, max(n, 1), self.sensors).first(n)

    def parsed(self, task: t.Task) -> Iterator[pa.RecordBatch]:
        """Yield nothing, as no message is known before the run."""
        return iter(())

    def check(self) -> None:
        """Check nothing, as no message is known before the run."""

"""Claims: which run may write below an address, where no lock can be held."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from riot_ops.core.errors import ConnectorError, excerpt
from riot_ops.core.storage import Address

__all__ = ["CLAIMS", "Claim", "ClaimContent", "Holder", "new_token"]

#: The folder of claims and manifests, which Spark and others pass over for its name.
CLAIMS = "_riot_ops"


def new_token() -> str:
    """Return a name that no other run has."""
    return uuid.uuid4().hex[:12]


class Holder(NamedTuple):
    """What tells runs apart: the later run has the greater number, and of two at the same time one the greater token.

    >>> str(Holder(3, "9f2c")), Holder.parse("00000003-9f2c")
    ('00000003-9f2c', Holder(number=3, token='9f2c'))
    """

    number: int
    token: str

    def __str__(self) -> str:
        return f"{self.number:08d}-{self.token}"

    @classmethod
    def parse(cls, text: str) -> Holder | None:
        """Return the holder with this text; None if it is of nobody."""
        number, _, token = text.partition("-")
        return cls(int(number), token) if number.isdigit() and token.isalnum() else None


class ClaimContent(msgspec.Struct):
    """What a claim is about, and who made it."""

    host: str
    pid: int
    since: str
    suffix: str
    streams: list[str] | None  # None: all
    continues: list[str] | None = None  # of a checkpoint: the files that still count

    def conflicts(self, other: ClaimContent) -> bool:
        """Whether two runs would write the same streams."""
        if self.suffix != other.suffix:
            return False
        return self.streams is None or other.streams is None or bool(set(self.streams) & set(other.streams))


class Claim:
    """The right to write below an address, which the run that starts last takes from those before.

    It needs no clock and no conditional write, only a store in which a file is listed and read once it is written. A
    run first writes its claim, ``_riot_ops/<number>-<token>.claim``, and then reads what counts. A run that has written
    something lists the claims before it counts on that: if there is a later one, the other run may not have read it.
    What a run writes bears its number and token, so that readers leave out what an earlier run writes too late.

    Parameters
    ----------
    folder : Address
    suffix : str, default ""
        Suffix of the files: runs that write others do not collide.
    streams : iterable of str, optional
        The streams that are written; by default all.
    token : str, optional
        Name of the run; by default a new one.

    Examples
    --------
    >>> first, second = (Claim(Address.of("memory://claims/out", {})) for _ in range(2))
    >>> first.take()
    >>> first.check()
    >>> second.take()
    >>> first.check()  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    riot_ops.core.errors.ConnectorError: another run writes to memory://claims/out now: process 7 on this host …
    """

    def __init__(
        self, folder: Address, suffix: str = "", streams: Iterable[str] | None = None, token: str | None = None
    ) -> None:
        self.folder = folder
        self.token = token or new_token()
        #: Whether a runner takes it: what is written without is then refused. Else the first write takes it.
        self.expected = False
        self._suffix = suffix
        self._streams = None if streams is None else sorted(streams)
        self._number: int | None = None

    @property
    def holder(self) -> Holder | None:
        """Its number and token; None before it is taken. A copy in another process finds it in the store."""
        if self._number is None:
            own = [one for one in self._listed() if one.token == self.token]
            self._number = max(own).number if own else None
        return None if self._number is None else Holder(self._number, self.token)

    def take(self, at_least: int = 0) -> None:
        """Take it from all runs before; ConnectorError if another run does the same at the same time and has it.

        ``at_least`` is a number that it must exceed.
        """
        numbers = [one.number for one in self._listed()]
        self._number = max([at_least, *numbers]) + 1
        self._put(self._content())
        self.check()

    def check(self) -> None:
        """Raise a ConnectorError if a later run has taken it."""
        listed = self._listed()
        own = self.holder
        later = [one for one in listed if own is None or one > own]
        for one in sorted(later, reverse=True):
            content = self.read(one)
            if content is None or content.conflicts(self._content()):
                raise self._lost(content)
        if own is None or own not in listed:
            raise self._lost(None)

    def settle(self, continues: list[str]) -> None:
        """Say which earlier files still count."""
        content = self._content()
        content.continues = continues
        self._put(content)

    def clean(self) -> None:
        """Remove the claims before this one, which can no longer be held."""
        self.check()
        own, mine = self.holder, self._content()
        for one in self._listed():
            if own is not None and one < own:
                content = self.read(one)
                if content is None or content.conflicts(mine):
                    self._place(one).delete()

    def holders(self) -> list[Holder]:
        """Return all holders, the last one first."""
        return sorted(self._listed(), reverse=True)

    def read(self, holder: Holder) -> ClaimContent | None:
        """Return a claim; None if it has gone, or cannot be understood."""
        data = self._place(holder).read()
        try:
            return None if data is None else msgspec.json.decode(data, type=ClaimContent)
        except msgspec.MsgspecError:
            return None

    def _content(self) -> ClaimContent:
        since = datetime.now(UTC).isoformat(" ", "seconds")
        return ClaimContent(socket.gethostname(), os.getpid(), since, self._suffix, self._streams)

    def _put(self, content: ClaimContent) -> None:
        holder = self.holder
        assert holder is not None
        self._place(holder).write(msgspec.json.encode(content))

    def _listed(self) -> list[Holder]:
        found = []
        for file in (self.folder / CLAIMS).files():
            name, _, kind = file.name.partition(".")
            if kind == "claim" and (holder := Holder.parse(name)) is not None:
                found.append(holder)
        return found

    def _place(self, holder: Holder) -> Address:
        return self.folder / CLAIMS / f"{holder}.claim"

    def _lost(self, other: ClaimContent | None) -> ConnectorError:
        who = ""
        if other is not None:
            here = other.host == socket.gethostname()
            who = f": process {other.pid} on {'this host' if here else excerpt(other.host, 80)} since {other.since}"
        return ConnectorError(
            f"another run writes to {self.folder} now{who}; one run at a time can write there, and the one that starts "
            "last does: this one ends here, and what it has not committed is left to the other"
        )

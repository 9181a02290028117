"""Assembly of messages, one piece at a time."""

from __future__ import annotations

from typing import Any

Piece = dict[str, Any]


class Joiner:
    """``push`` returns ``(records, rejected)``: the records completed by a piece, and the rejected pieces with reasons.

    A record is ``(key, values by name, complete)``.
    """

    def __init__(self, names: list[str], timeout: float | None = None, emit: bool = False) -> None:
        self.names, self.timeout, self.emit = names, timeout, emit
        self.clock: float | None = None
        self.open: dict[Any, tuple[float | None, list[Piece]]] = {}

    def push(self, piece: Piece) -> tuple[list[Any], list[tuple[Piece, str]]]:
        key, name, time = piece["message"], piece["obs_type"], piece["event_time"]
        if name not in self.names:
            return [], [(piece, "unknown_type")]
        now = self.clock
        if time is not None and (now is None or time > now):
            now = time
        begun, pieces = self.open.get(key, (None, []))
        if not self._over(begun, now) and any(p["obs_type"] == name for p in pieces):
            return [], [(piece, "duplicate")]
        self.clock = now
        out: list[Any] = []
        rejected: list[tuple[Piece, str]] = []
        for k in [k for k, (start, _) in self.open.items() if self._over(start, now)]:
            records, pieces = self._give_up(k)
            out += records
            rejected += pieces
        _, pieces = self.open.setdefault(key, (now, []))
        pieces.append(piece)
        if len(pieces) == len(self.names):
            del self.open[key]
            out.append((key, {p["obs_type"]: p["value"] for p in pieces}, True))
        return out, rejected

    def end(self) -> tuple[list[Any], list[tuple[Piece, str]]]:
        out: list[Any] = []
        rejected: list[tuple[Piece, str]] = []
        for key in list(self.open):
            records, pieces = self._give_up(key)
            out += records
            rejected += pieces
        return out, rejected

    def _over(self, start: float | None, now: float | None) -> bool:
        return self.timeout is not None and start is not None and now is not None and now > start + self.timeout

    def _give_up(self, key: Any) -> tuple[list[Any], list[tuple[Piece, str]]]:
        _, pieces = self.open.pop(key)
        if self.emit:
            return [(key, {p["obs_type"]: p["value"] for p in pieces}, False)], []
        return [], [(p, "incomplete") for p in pieces]

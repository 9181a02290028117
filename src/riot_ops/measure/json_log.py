"""Log messages and the progress of runs as JSON, an object per line."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime

from riot_ops.core.errors import escape_surrogates

__all__ = ["EVENT", "PROGRESS_LOGGER", "JSONFormatter"]

#: Attribute of a log record with the keys of an event.
EVENT = "riot_ops_event"
#: Logger of the progress after each commit, at level DEBUG.
PROGRESS_LOGGER = "riot_ops.progress"


class JSONFormatter(logging.Formatter):
    """Formats a log record as one line with a JSON object.

    ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``event`` (``log`` for a message that is no event of a run) and
    ``message``; events of a run have more keys, see ``docs/howto/operate.md``. An exception adds its type as ``error``.

    Examples
    --------
    >>> record = logging.LogRecord("riot_ops", logging.WARNING, "", 0, "%d records rejected", (3,), None)
    >>> record.created = 0.5
    >>> JSONFormatter().format(record)[:86]
    '{"time": "1970-01-01T00:00:00.500000Z", "level": "warning", "logger": "riot_ops", "eve'
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")
        found = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": "log",
            "message": escape_surrogates(record.getMessage()),
            **getattr(record, EVENT, {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            found["error"] = record.exc_info[0].__name__
        return json.dumps(found, ensure_ascii=False)

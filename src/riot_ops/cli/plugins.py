"""Commands that distributions add to ``riot-ops`` by entry points of the group ``riot_ops.commands``.

An entry point is named like the command and is a function that takes the :class:`typer.Typer` application and adds
the command to it.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

import typer

from riot_ops.core.errors import ConfigError, MissingExtraError, RiotError, exception_text

__all__ = ["GROUP", "KNOWN", "add_plugins"]

#: The group of the entry points.
GROUP = "riot_ops.commands"

#: Entry points of this distribution, for sources that run without installed metadata; see ``pyproject.toml``.
OWN = (EntryPoint("reuse", "riot_ops.cli.reuse:add_reuse", GROUP),)

#: The distribution of each command that another distribution of this project adds.
KNOWN = {"bench": "riot-bench", "report": "riot-bench", "validate": "riot-bench"}


def add_plugins(app: typer.Typer) -> None:
    """Add the commands of all installed distributions.

    A missing command of :data:`KNOWN` says what to install. A command that cannot be loaded says why when it is called;
    the other commands work.
    """
    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    installed = {entry.name: entry for entry in (*OWN, *found)}
    for name in sorted(installed.keys() | KNOWN.keys()):
        entry = installed.get(name)
        if entry is None:
            error = MissingExtraError(f"riot-ops {name}", package=KNOWN[name])
            _add_refusal(app, name, f"pip install {KNOWN[name]}", error)
        else:
            _add_entry(app, entry)


def _add_entry(app: typer.Typer, entry: EntryPoint) -> None:
    try:
        entry.load()(app)
    except Exception as error:  # whatever one distribution raises, the other commands must work
        origin = entry.dist.name if entry.dist else entry.value
        text = f"the command {entry.name!r} of {origin} cannot be loaded: {exception_text(error)}"
        _add_refusal(app, entry.name, "cannot be loaded", ConfigError(text))


def _add_refusal(app: typer.Typer, name: str, note: str, error: RiotError) -> None:
    @app.command(
        name,
        help=f"Not available: {note}.",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def refuse() -> None:
        raise error

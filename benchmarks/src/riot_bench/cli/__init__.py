"""The commands ``riot-ops bench``, ``report`` and ``validate``, loaded by riot_ops through entry points."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

__all__ = ["add_bench", "add_report", "add_validate"]


def add_bench(app: typer.Typer) -> None:
    """Add ``riot-ops bench``."""
    from riot_bench.cli import bench

    app.command("bench", epilog=bench.EXAMPLES)(bench.bench)


def add_report(app: typer.Typer) -> None:
    """Add ``riot-ops report``."""
    from riot_bench.cli import report

    app.command("report", epilog=report.EXAMPLES)(report.report)


def add_validate(app: typer.Typer) -> None:
    """Add ``riot-ops validate``."""
    from riot_bench.cli import validate

    app.command("validate", epilog=validate.EXAMPLES)(validate.validate)

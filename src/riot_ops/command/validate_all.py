"""``riot-ops validate --all``: the table of all applications by variant."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from riot_ops.bench.variants import REFERENCE, Case, Outcome, Variant

__all__ = ["validate_all"]


def validate_all(names: Sequence[str], quick: bool, as_json: bool) -> bool:
    """Run all variants, print the table; returns whether everything is equal."""
    from riot_ops.bench import variants
    from riot_ops.bench.sparks import folder, spark_session
    from riot_ops.dataflows.applications import APPLICATIONS, application

    told = Console(stderr=True)

    def tell(text: str) -> None:
        told.print(text, markup=False, highlight=False, soft_wrap=True)

    wanted = variants.variants(quick)
    chosen = [application(name) for name in names] or list(APPLICATIONS.values())
    found: dict[tuple[str, Variant], Outcome] = {}
    with contextlib.ExitStack() as stack:
        base = stack.enter_context(folder())
        cases = [variants.case(one, base / "inputs" / one.name) for one in chosen]
        session: list[Any] = []

        def spark() -> Any:
            if not session:
                session.append(stack.enter_context(spark_session()))
            return session[0]

        for outcome in variants.run(cases, wanted, spark, base, tell):
            found[outcome.application, outcome.variant] = outcome
        plain = {given.name: variants.like_plain_python(given) for given in cases}
    good = True
    for given in cases:
        reference = found[given.name, REFERENCE]
        equal = {
            v: bool(found[given.name, v].digest) and found[given.name, v].digest == reference.digest for v in wanted
        }
        good &= all(equal.values()) and plain[given.name] is not False
        if as_json:
            _lines(given, wanted, found, equal, plain[given.name])
    if not as_json:
        Console().print(_table(cases, wanted, found, plain))
        for outcome in found.values():
            if outcome.reason:
                tell(f"{outcome.application}, {outcome.variant.name}: {outcome.reason}")
    return good


def _lines(
    given: Case,
    wanted: Sequence[Variant],
    found: dict[tuple[str, Variant], Outcome],
    equal: dict[Variant, bool],
    plain: bool | None,
) -> None:
    for variant in wanted:
        one = found[given.name, variant]
        line = {
            "application": given.name,
            "suite": given.application.suite,
            "runner": variant.runner,
            "partitions": variant.partitions,
            "form": variant.form,
            "equal": equal[variant],
            "records": dict(one.records),
            "digest": one.digest,
            "plain_python": plain,
            "reason": one.reason,
        }
        print(json.dumps(line, ensure_ascii=False))


def _table(
    cases: Sequence[Case],
    wanted: Sequence[Variant],
    found: dict[tuple[str, Variant], Outcome],
    plain: dict[str, bool | None],
) -> Table:
    """A row per application, a column per variant; what differs stands out."""
    table = Table(
        caption="1, 2: partitions on Spark, cores in process. Equal: the digest of all records of all streams."
    )
    for column in ("application", "records", "plain Python"):
        table.add_column(column, justify="right" if column == "records" else "left")
    for variant in wanted[1:]:
        table.add_column(f"{variant.runner} {variant.partitions}\n{variant.form}")
    for given in cases:
        reference = found[given.name, REFERENCE]
        cells = [_cell(found[given.name, v], reference) for v in wanted[1:]]
        words = {None: "[dim]none[/]", True: "equal", False: "[bold red]differs[/]"}
        table.add_row(given.name, f"{sum(reference.records.values()):,}", words[plain[given.name]], *cells)
    return table


def _cell(one: Outcome, reference: Outcome) -> str:
    if one.reason or reference.reason:
        return "[bold red]failed[/]"
    return "equal" if one.digest == reference.digest else "[bold red]differs[/]"

"""``riot-ops validate --all``: the table of all applications by variant."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from riot_bench.harness.variants import REFERENCE, Case, Outcome, Variant, failure

__all__ = ["validate_all"]

#: Characters of a reason in the table; all of it is told beside.
REASON = 200


def validate_all(names: Sequence[str], quick: bool, as_json: bool) -> bool:
    """Run all variants, print the table; returns whether everything is equal.

    The table is there whatever fails, and after Ctrl-C.
    """
    from riot_bench.harness import variants
    from riot_bench.harness.micro_batches import folder, spark_session
    from riot_bench.harness.validation import plain_program
    from riot_ops.dataflows.applications import APPLICATIONS, application

    told = Console(stderr=True)

    def tell(text: str) -> None:
        told.print(text, markup=False, highlight=False, soft_wrap=True)

    wanted = variants.variants(quick)
    chosen = [application(name) for name in names] or list(APPLICATIONS.values())
    for one in chosen:
        if one.results:  # what it needs that is not installed is told now, not when all has run
            with contextlib.suppress(ModuleNotFoundError):
                plain_program(one)
    found: dict[tuple[str, Variant], Outcome] = {}
    plain: dict[str, bool | None] = {}
    try:
        with contextlib.ExitStack() as stack:
            base = stack.enter_context(folder())
            spark = _once(lambda: stack.enter_context(spark_session()))
            cases = list[Case]()
            for one in chosen:
                try:
                    cases.append(variants.case(one, base / "inputs" / one.name))
                except Exception as error:  # whatever it is, the others go on
                    found |= {(one.name, v): Outcome(one.name, v, "", reason=failure(error)) for v in wanted}
            for outcome in variants.run(cases, wanted, spark, base, tell):
                found[outcome.application, outcome.variant] = outcome
            for given in cases:
                if found[given.name, REFERENCE].digest:
                    try:
                        plain[given.name] = variants.like_plain_python(given)
                    except Exception as error:  # this is a difference, too
                        plain[given.name] = False
                        tell(f"{given.name} in plain Python: {failure(error)}")
    finally:
        suites = {one.name: one.suite for one in chosen}
        rows = list(_rows(suites, wanted, found, plain))
        if as_json:
            for row in rows:
                print(json.dumps(row, ensure_ascii=False))
        else:
            Console().print(_table(rows))
            for outcome in found.values():
                if outcome.reason:
                    tell(f"{outcome.application}, {outcome.variant.name}: {outcome.reason}")
    return all(row["equal"] and row["plain_python"] is not False for row in rows)


def _once(start: Callable[[], Any]) -> Callable[[], Any]:
    """What is started when it is needed first; what cannot be is not tried again."""
    made: list[Any] = []

    def get() -> Any:
        if not made:
            try:
                made.append(start())
            except Exception as error:  # raised below, and for whoever asks next
                made.append(error)
        if isinstance(made[0], Exception):
            raise made[0]
        return made[0]

    return get


def _rows(
    suites: Mapping[str, str],
    wanted: Sequence[Variant],
    found: Mapping[tuple[str, Variant], Outcome],
    plain: Mapping[str, bool | None],
) -> Iterator[dict[str, Any]]:
    """One for each application and variant."""
    for name, suite in suites.items():
        reference = found.get((name, REFERENCE))
        for variant in wanted:
            one = found.get((name, variant))
            result = _result(one, reference)
            yield {
                "application": name,
                "suite": suite,
                "runner": variant.runner,
                "partitions": variant.partitions,
                "form": variant.form,
                "result": result,
                "equal": result == "equal",
                "records": dict(one.records) if one else {},
                "digest": one.digest if one else "",
                "plain_python": plain.get(name),
                "reason": one.reason if one else "",
            }


def _result(one: Outcome | None, reference: Outcome | None) -> str:
    if one is None:
        return "not run"
    if not one.digest:
        return "failed"
    if reference is None or not reference.digest:
        return "not compared"
    return "equal" if one.digest == reference.digest else "differs"


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """What differs stands out."""
    table = Table(
        caption="Partitions on Spark, cores in process. Equal: the digest of all records of all streams is that of the "
        "run in process on one core in one batch."
    )
    for column in ("application", "runner", "partitions", "cut", "records", "plain Python", "result"):
        number = column in ("partitions", "records")
        table.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number)
    words = {None: "[dim]none[/]", True: "equal", False: "[bold red]differs[/]"}
    for row in rows:
        result = "equal" if row["equal"] else f"[bold red]{row['result']}[/]"
        if row["reason"]:
            result += escape(f": {' '.join(row['reason'].split())[:REASON]}")
        records = f"{sum(row['records'].values()):,}"
        of = (row["application"], row["runner"], str(row["partitions"]), row["form"], records)
        table.add_row(*of, words[row["plain_python"]], result)
    return table

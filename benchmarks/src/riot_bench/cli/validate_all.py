"""``riot-ops validate --all``: all applications in all variants, as a table."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from riot_bench.harness.variants import REFERENCE, Case, Outcome, Variant, describe_error

__all__ = ["validate_all"]

#: Characters of a reason in the table; standard error has all of it.
REASON = 200


def validate_all(names: Sequence[str], quick: bool, as_json: bool) -> bool:
    """Run all variants, print the table, and return whether all results are equal.

    The table is also printed after failures and after Ctrl-C.
    """
    from riot_bench.harness import variants
    from riot_bench.harness.folders import temporary_folder
    from riot_bench.harness.session import spark_session
    from riot_bench.harness.validation import plain_program
    from riot_ops.dataflows.applications import APPLICATIONS, application

    errors = Console(stderr=True)

    def log(text: str) -> None:
        errors.print(text, markup=False, highlight=False, soft_wrap=True)

    wanted = variants.variants(quick)
    chosen = [application(name) for name in names] or list(APPLICATIONS.values())
    for one in chosen:
        if one.results:  # a missing package is reported now, not after all runs
            with contextlib.suppress(ModuleNotFoundError):
                plain_program(one)
    found: dict[tuple[str, Variant], Outcome] = {}
    plain: dict[str, bool | None] = {}
    try:
        with contextlib.ExitStack() as stack:
            base = stack.enter_context(temporary_folder())
            spark = _once(lambda: stack.enter_context(spark_session()))
            cases = list[Case]()
            for one in chosen:
                try:
                    cases.append(variants.prepare_case(one, base / "inputs" / one.name))
                except Exception as error:  # any error: the other applications continue
                    found |= {(one.name, v): Outcome(one.name, v, "", reason=describe_error(error)) for v in wanted}
            for outcome in variants.run_variants(cases, wanted, spark, base, log):
                found[outcome.application, outcome.variant] = outcome
            for given in cases:
                if found[given.name, REFERENCE].digest:
                    try:
                        plain[given.name] = variants.matches_plain_python(given)
                    except Exception as error:  # an error counts as a difference
                        plain[given.name] = False
                        log(f"{given.name} in plain Python: {describe_error(error)}")
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
                    log(f"{outcome.application}, {outcome.variant.name}: {outcome.reason}")
    return all(row["equal"] and row["plain_python"] is not False for row in rows)


def _once(start: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function that calls ``start`` at its first call only; a failure is not retried."""
    result: list[Any] = []

    def get() -> Any:
        if not result:
            try:
                result.append(start())
            except Exception as error:  # raised below at every call
                result.append(error)
        if isinstance(result[0], Exception):
            raise result[0]
        return result[0]

    return get


def _rows(
    suites: Mapping[str, str],
    wanted: Sequence[Variant],
    found: Mapping[tuple[str, Variant], Outcome],
    plain: Mapping[str, bool | None],
) -> Iterator[dict[str, Any]]:
    """Yield a row for each application and variant."""
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
                "form": variant.mode,
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
    """Build the table; differences are highlighted."""
    table = Table(
        caption="Partitions on Spark, cores in process. Equal: the digest of all records of all streams equals that of "
        "the run in process on one core in one batch."
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

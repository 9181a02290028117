"""Documented defaults equal those of signatures, for every function and class with a section of parameters."""

from __future__ import annotations

import ast
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any

import msgspec
import pytest

import riot_ops

#: Packages that need Spark or only parse command lines.
LEFT_OUT = ("riot_ops.spark", "riot_ops.reuse.spark", "riot_ops.cli", "riot_ops.__main__")
DURATION = re.compile(r"([\d.]+) (microsecond|millisecond|second|minute|hour|day)s?")
#: A default described in words must stand for one of these.
UNSET = (None, (), {}, MISSING)


def modules() -> Iterator[str]:
    for module in pkgutil.walk_packages(riot_ops.__path__, "riot_ops."):
        if not module.name.startswith(LEFT_OUT):
            yield module.name


def documented() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Functions and classes, with their methods, whose docstring has a section of parameters."""
    for name in modules():
        for value in vars(import_module(name)).values():
            if getattr(value, "__module__", None) != name:
                continue
            members = vars(value).values() if inspect.isclass(value) else ()
            for one in (value, *(getattr(member, "__func__", member) for member in members)):
                if (inspect.isfunction(one) or inspect.isclass(one)) and "Parameters\n" in (one.__doc__ or ""):
                    yield f"{name}.{one.__qualname__}", one


def signature_defaults(value: Callable[..., Any]) -> dict[str, Any]:
    """The default of each parameter, ``MISSING`` for a parameter without one."""
    if is_dataclass(value):
        factories = {f.name: f.default_factory() for f in fields(value) if f.default_factory is not MISSING}
        return {f.name: f.default for f in fields(value)} | factories
    if inspect.isclass(value) and issubclass(value, msgspec.Struct):
        return {f.name: MISSING if f.required else struct_default(f) for f in msgspec.structs.fields(value)}
    parameters = inspect.signature(value).parameters.values()
    return {p.name: MISSING if p.default is p.empty else p.default for p in parameters}


def struct_default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()


def documented_defaults(text: str) -> Iterator[tuple[str, str]]:
    """``(name, default)`` of each documented default, as in ``a, b : int, default 1 and 2``."""
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\S.*\n---|\Z)", inspect.cleandoc(text), re.MULTILINE | re.DOTALL)
    for names, default in re.findall(
        r"^(\w[\w, ]*?) : .*?\bdefault (.+)$", section[1] if section else "", re.MULTILINE
    ):
        several = names.split(", ")
        yield from zip(several, default.split(" and ") if len(several) > 1 else [default], strict=False)


def agrees(stated: str, default: Any) -> bool:
    """Whether a documented default is the one of the signature."""
    if stated == "0" and default == timedelta(0):
        return True
    if found := DURATION.fullmatch(stated):
        stated_value: Any = timedelta(**{f"{found[2]}s": float(found[1])})
    else:
        try:
            stated_value = ast.literal_eval(stated)
        except (ValueError, SyntaxError):
            return any(default is unset or default == unset for unset in UNSET[:3])
    return bool(
        default is not MISSING
        and default == stated_value
        and isinstance(default, bool) == isinstance(stated_value, bool)
    )


CASES = list(documented())


@pytest.mark.parametrize(
    "value", [value for _, value in CASES], ids=[name.removeprefix("riot_ops.") for name, _ in CASES]
)
def test_documented_defaults_are_those_of_the_signature(value):
    defaults = signature_defaults(value)
    wrong = {
        name: (stated, defaults[name])
        for name, stated in documented_defaults(value.__doc__)
        if name in defaults and not agrees(stated, defaults[name])
    }
    assert not wrong, f"documented and actual defaults: {wrong}"


@pytest.mark.parametrize(
    ("stated", "default", "agreed"),
    [
        ("1 day", timedelta(days=1), True),
        ("0.5 seconds", timedelta(milliseconds=500), True),
        ("0", timedelta(0), True),
        ("86400.0", timedelta(days=1), False),
        ("1 day", timedelta(days=2), False),
        ("60", 60.0, True),
        ("1", True, False),
        ('"city"', "city", True),
        ("the system's authorities", None, True),
        ("a minute", 60.0, False),
        ("3", MISSING, False),
    ],
)
def test_defaults_are_compared_with_units_and_types(stated, default, agreed):
    assert agrees(stated, default) == agreed


def test_sources_sinks_and_builders_are_covered():
    names = {name for name, _ in CASES}
    for part in ("connectors.mqtt.sink.MQTTSink", "connectors.mqtt.source.MQTTSource", "core.file_sink.ParquetSink",
                 "dataflows.riotbench.stats.stats", "dataflows.neptune.equipment_monitoring.equipment_monitoring",
                 "tasks.filter.deduplicate.Deduplicate"):  # fmt: skip
        assert f"riot_ops.{part}" in names

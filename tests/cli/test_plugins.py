"""Commands of other distributions: loaded by entry points, and refused with a remedy where they are missing or broken."""

from __future__ import annotations

import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

from riot_ops.cli import plugins
from riot_ops.core.errors import ConfigError, MissingExtraError


@pytest.fixture
def installed(monkeypatch):
    """Install entry points, each with the function that it names; returns the application with their commands."""

    def install(**functions):
        module = ModuleType("installed_commands")
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        entries = [EntryPoint(name, f"{module.__name__}:{name}", plugins.GROUP) for name in functions]
        monkeypatch.setattr(plugins, "entry_points", lambda group: entries if group == plugins.GROUP else [])
        app = typer.Typer()
        app.command("own")(lambda: print("own ran"))
        plugins.add_plugins(app)
        return app

    return install


def add_greeting(app):
    @app.command("greet")
    def greet(name: str) -> None:
        print(f"hello {name}")


def broken(app):
    raise RuntimeError("no such device")


def test_entry_point_adds_its_command(installed):
    app = installed(greet=add_greeting)
    assert CliRunner().invoke(app, ["greet", "ada"]).output == "hello ada\n"
    assert "greet" in CliRunner().invoke(app, ["--help"]).output


def test_broken_distribution_costs_its_own_command_alone(installed):
    app = installed(broken=broken, greet=add_greeting)
    for words, output in ((["own"], "own ran\n"), (["greet", "bob"], "hello bob\n")):
        assert CliRunner().invoke(app, words).output == output
    refused = CliRunner().invoke(app, ["broken", "--any", "option"]).exception
    assert isinstance(refused, ConfigError)
    assert "'broken'" in str(refused)
    assert "no such device" in str(refused)
    assert "cannot be loaded" in CliRunner().invoke(app, ["--help"]).output


def test_own_commands_are_the_entry_points_of_the_distribution():
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    declared = tomllib.loads(text)["project"]["entry-points"][plugins.GROUP]
    assert {one.name: one.value for one in plugins.OWN} == declared


@pytest.mark.parametrize("name", plugins.KNOWN)
def test_missing_distribution_is_named(name, installed):
    app = installed()
    refused = CliRunner().invoke(app, [name, "--list"]).exception
    assert isinstance(refused, MissingExtraError)
    assert str(refused) == f"riot-ops {name} needs an optional dependency: pip install 'riot-bench'"
    assert "Not available: pip install riot-bench" in CliRunner().invoke(app, ["--help"]).output

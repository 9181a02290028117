#!/usr/bin/env python3
"""Installs and starts the servers that tests and benchmarks talk to.

    services.py install [NAME ...]    install missing servers (all by default), or the browser: chromium
    services.py start NAME            start one on free loopback ports, print its URLs, stop at Ctrl-C

``riot_ops.testing.services`` starts servers; this script installs them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

from riot_ops.core.errors import ConnectorError
from riot_ops.testing.services import Azurite, GCSEmulator, Mosquitto, Moto, Postgres, Service, Tansu, program


def apt_install(*packages: str) -> None:
    """Install Debian packages; says what to do where that is not possible."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise ConnectorError(f"{packages[0]} is missing; install it as root (Debian: apt-get install {packages[0]})")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (
        ["apt-get", "update", "-qq"],
        ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages],
    ):
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)


def install_mosquitto() -> None:
    """The MQTT broker."""
    try:
        program("mosquitto", "")
    except ConnectorError:
        apt_install("mosquitto")


def install_azurite() -> None:
    """The Azure storage emulator, by npm into the user's cache."""
    if Azurite.script().exists():
        return
    for name in ("node", "npm"):
        try:
            program(name, "")
        except ConnectorError:
            apt_install("nodejs", "npm")
    home = Azurite.home()
    home.mkdir(parents=True, exist_ok=True)
    npm = program("npm", "Debian: apt-get install npm")
    options = ["--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(home)]
    subprocess.run([npm, "install", *options, f"azurite@{Azurite.version}"], check=True, stdout=subprocess.DEVNULL)


def install_postgres() -> None:
    """The database; not as a service of the system."""
    try:
        Postgres.find_program("initdb")
    except ConnectorError:
        apt_install("postgresql")


def install_chromium() -> None:
    """The browser of the tests of pages."""
    try:
        program("chromium", "")
    except ConnectorError:
        apt_install("chromium")


def install_nothing() -> None:
    """A server that comes with a package of the environment."""


#: By name: how to install a server, and how to start it.
SERVICES: dict[str, tuple[Callable[[], None], Callable[[], Service]]] = {
    "azurite": (install_azurite, Azurite),
    "gcs": (install_nothing, GCSEmulator),
    "mosquitto": (install_mosquitto, Mosquitto),
    "moto": (install_nothing, Moto),
    "postgres": (install_postgres, Postgres),
    "tansu": (install_nothing, Tansu),
}

#: What tests need beside servers; ``make test`` installs it.
PROGRAMS: dict[str, Callable[[], None]] = {"chromium": install_chromium}


def install(names: list[str]) -> int:
    """Install servers; the number of those that could not be."""
    failed = 0
    for name in names:
        try:
            (PROGRAMS[name] if name in PROGRAMS else SERVICES[name][0])()
            print(f"services: {name} is installed")
        except (ConnectorError, OSError, subprocess.CalledProcessError) as error:
            print(f"services: {error}; the tests that need {name} will fail", file=sys.stderr)
            failed += 1
    return failed


def start(name: str) -> None:
    """Start a server and wait for Ctrl-C or SIGTERM."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with SERVICES[name][1]() as service:
            for what, url in service.urls().items():
                print(f"{what}: {url}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        print(f"services: {name} stopped")


def main() -> int:
    """Return the command line."""
    parser = argparse.ArgumentParser(description="Install and start the servers that tests talk to.")
    commands = parser.add_subparsers(dest="command", required=True)
    known = ", ".join([*SERVICES, *PROGRAMS])
    commands.add_parser("install").add_argument("names", nargs="*", metavar="NAME", help=f"of {known}")
    commands.add_parser("start").add_argument("name", choices=list(SERVICES))
    given = parser.parse_args()
    if given.command == "install":
        unknown = set(given.names) - {*SERVICES, *PROGRAMS}
        if unknown:
            parser.error(f"unknown server {min(unknown)!r}; known are {known}")
        return min(1, install(given.names or list(SERVICES)))
    start(given.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())

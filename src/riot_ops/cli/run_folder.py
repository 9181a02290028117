"""The folder of a run of the command: whose results are in it, and whether a new run may go there."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from riot_ops.core.errors import ConfigError
from riot_ops.core.paths import write_atomic

__all__ = ["RunFolder"]

#: Names the run whose results a folder holds.
MANIFEST = "run.json"


class RunFolder:
    """Results of one run, never of two: those of an earlier one are refused, replaced or continued.

    Parameters
    ----------
    folder : Path
        Made if missing.
    run : mapping of str to JSON-able value
        What tells runs apart: the application and all that decides its input.
    made : iterable of str
        Files and folders that the run may make beside its streams. Those that are there already are not its
        own, and are never removed.
    checkpoint : str, optional
        Where a run keeps its state. What is there is continued.
    overwrite : bool
        Remove what an earlier run made.

    Attributes
    ----------
    continued : bool
        Whether this run continues an earlier one.
    """

    def __init__(
        self,
        folder: Path,
        run: Mapping[str, Any],
        made: Iterable[str],
        *,
        checkpoint: Path | None = None,
        overwrite: bool = False,
    ) -> None:
        self._folder = folder
        self.continued = checkpoint is not None and _is_nonempty_folder(checkpoint)
        place = None if checkpoint is None else str(checkpoint.absolute())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            earlier = self._earlier()
            if self.continued:
                self._check_continued(earlier, run, place, overwrite)
                self._artifacts = list((earlier or {}).get("made", ()))
                self._write(earlier or {})
                return
            if earlier is not None and not overwrite:
                raise ConfigError(
                    f"{folder} holds the results of {_describe_run(earlier)}: name another folder with --out, "
                    "or replace them with --overwrite"
                    + (f", or go on with --checkpoint {earlier['checkpoint']}" if earlier.get("checkpoint") else "")
                )
            for name in (earlier or {}).get("made", ()):
                _remove_artifact(folder, str(name))
            self._artifacts = [name for name in made if not (folder / name).exists()]
            begun = datetime.now(UTC).isoformat(timespec="seconds")
            self._manifest = {"run": dict(run), "begun": begun, "checkpoint": place}
            self._write(self._manifest)
        except OSError as error:
            raise ConfigError(f"--out must be a folder that can be written, got {str(folder)!r}: {error}") from None

    def add(self, streams: Iterable[str]) -> None:
        """Note that the run makes folders for these streams."""
        if not self.continued:
            self._artifacts += [name for name in sorted(streams) if not (self._folder / name).exists()]
            self._write(self._manifest)

    def _earlier(self) -> dict[str, Any] | None:
        """The manifest of the run whose results are here."""
        path = self._folder / MANIFEST
        if not path.exists():
            return None
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(found, dict) and isinstance(found.get("run"), dict) and isinstance(found.get("made"), list):
                return found
        except ValueError:
            pass
        raise ConfigError(f"{path} was not written by this command: name another folder with --out")

    def _check_continued(
        self, earlier: dict[str, Any] | None, run: Mapping[str, Any], place: str | None, overwrite: bool
    ) -> None:
        if overwrite:
            raise ConfigError(
                f"--checkpoint {place} holds a run to go on with, and --overwrite begins anew: leave out --overwrite, "
                "or name a new folder with --checkpoint"
            )
        if earlier is None or earlier.get("checkpoint") != place:
            held = "no results of a run" if earlier is None else f"the results of {_describe_run(earlier)}"
            raise ConfigError(
                f"--checkpoint {place} holds a run to go on with, but {self._folder} holds {held}: "
                "name that run's folder with --out, or a new one with --checkpoint"
            )
        for name in sorted({*run, *earlier["run"]}):
            then, now = earlier["run"].get(name), run.get(name)
            if then != now:
                raise ConfigError(
                    f"--checkpoint {place} holds a run with {name} {then!r}, now it is {now!r}: "
                    "go on with the same options, or name a new folder with --checkpoint"
                )

    def _write(self, manifest: dict[str, Any]) -> None:
        write_atomic(self._folder / MANIFEST, json.dumps({**manifest, "made": self._artifacts}, indent=1).encode())


def _is_nonempty_folder(folder: Path) -> bool:
    return folder.is_dir() and any(folder.iterdir())


def _describe_run(manifest: Mapping[str, Any]) -> str:
    run = manifest["run"]
    return f"{run.get('application')} over {run.get('input')} of {manifest.get('begun')}"


def _remove_artifact(folder: Path, name: str) -> None:
    path = folder / name
    if path.parent != folder or path.name in ("", ".."):
        raise ConfigError(f"{folder / MANIFEST} names {name!r}, which no run makes: remove the results yourself")
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

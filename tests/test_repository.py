"""Workflow, citation and template files are well-formed, and nothing generated or large is in the tree."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def loaded(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def tracked():
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout: the source distribution has no list of tracked files")
    return [Path(name.decode()) for name in done.stdout.split(b"\0") if name and (ROOT / name.decode()).exists()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflow_is_valid(path):
    workflow = loaded(path)
    assert workflow["name"] == path.stem
    assert workflow[True]  # YAML 1.1 reads the key "on" as a truth value
    assert workflow["permissions"] == {"contents": "read"}, "jobs ask for more by themselves"
    jobs = workflow["jobs"]
    for name, job in jobs.items():
        assert job["runs-on"].startswith("ubuntu-"), name
        needs = job.get("needs", [])
        assert {needs} if isinstance(needs, str) else set(needs) <= jobs.keys()
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), f"{name}: {step}"
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+/[\w./-]+@(v\d+|release/v\d+|[0-9a-f]{40})", step["uses"]), step["uses"]
            else:
                done = subprocess.run(["bash", "-n"], input=_without_expressions(step["run"]), text=True, check=False)
                assert done.returncode == 0, step["run"]


def _without_expressions(script):
    return re.sub(r"\$\{\{.*?\}\}", "x", script)


def test_workflows_run_the_commands_of_the_makefile():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for path in WORKFLOWS:
        used = set(re.findall(r"make ([a-z-]+)", path.read_text(encoding="utf-8")))
        assert used <= targets, path


def test_workflow_tests_every_supported_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = set(re.findall(r"Python :: (3\.\d+)", " ".join(project["classifiers"])))
    assert (
        set(loaded(ROOT / ".github" / "workflows" / "tests.yml")["jobs"]["test"]["strategy"]["matrix"]["python"])
        == stated
    )
    assert f">={min(stated, key=lambda v: int(v.split('.')[1]))}" == project["requires-python"]


def test_publishing_is_by_a_trusted_publisher_with_attestations():
    jobs = loaded(ROOT / ".github" / "workflows" / "publish.yml")["jobs"]
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["build"]["permissions"]["attestations"] == "write"
    text = (ROOT / ".github" / "workflows" / "publish.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    assert "sbom" in text


def test_citation_names_the_papers():
    citation = loaded(ROOT / "CITATION.cff")
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == version
    assert citation["license"] == "Apache-2.0"
    assert len(citation["references"]) == 6
    for reference in citation["references"]:
        assert reference["title"]
        assert reference["year"]
        assert all(author["family-names"] for author in reference["authors"])


def test_issue_forms_are_valid():
    for path in TEMPLATES:
        form = loaded(path)
        if path.stem == "config":
            continue
        assert form["name"]
        assert form["description"]
        ids = [field["id"] for field in form["body"]]
        assert len(ids) == len(set(ids))
        assert all(field["type"] in ("textarea", "input", "dropdown", "checkboxes") for field in form["body"])


def test_pre_commit_runs_the_linter():
    hooks = [hook["id"] for repo in loaded(ROOT / ".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert {"ruff-check", "ruff-format"} <= set(hooks)


def test_nothing_generated_or_large_is_tracked():
    for path in tracked():
        size = (ROOT / path).stat().st_size
        limit = 200 * 1024 if path.suffix == ".csv" else 350_000
        assert size <= limit, f"{path} has {size} bytes"
        if not path.is_relative_to("tests/data/samples") and path != Path("src/riot_ops/monitoring/page.html"):
            assert path.suffix not in (".html", ".jsonl", ".png", ".whl"), path
        assert path.parts[0] not in ("build", "dist", "out"), path


def test_no_registry_host_is_named():
    hosts = re.compile(
        r"\b(pypi\.org|pythonhosted\.org|registry\.npmjs\.org|repo1?\.maven\.org|deb\.debian\.org|crates\.io)\b"
    )
    for path in tracked():
        if path != Path("tests/test_repository.py") and path.suffix not in (".state", ".model"):
            found = hosts.search((ROOT / path).read_text(encoding="utf-8", errors="replace"))
            assert not found, f"{path}: {found[0]}"

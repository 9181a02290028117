"""The server of the live page, asked by a client of its own."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time

import pytest

import riot_ops as ro
from riot_ops import tasks as t
from riot_ops.core.errors import ConfigError, ConnectorError
from riot_ops.monitoring import LiveServer
from riot_ops.monitoring.page import page, report, security_policy
from tests.runtime.test_background_run import Ticks, until

HOSTILE = "</script><script>alert(1)</script>\u2028"


def counted():
    flow = ro.Dataflow("counted")
    readings = flow.source("readings", schema={"room": "string", "value": "double"})
    return flow.sink("out", readings.to(t.KalmanFilter(by="room"), id="smooth"))


@pytest.fixture
def live():
    with counted().launch(Ticks()) as run, ro.live(run, every="300ms") as found:
        yield found


def get(live, path, headers=(), method="GET"):
    connection = http.client.HTTPConnection(live.host, live.port, timeout=20)
    connection.request(method, path, headers=dict(headers))
    answer = connection.getresponse()
    return answer, answer.read().decode()


def events(live, n, path="/events", headers=()):
    connection = http.client.HTTPConnection(live.host, live.port, timeout=20)
    connection.request("GET", path, headers=dict(headers))
    answer = connection.getresponse()
    found = []
    while len(found) < n:
        name, data = answer.readline().decode(), answer.readline().decode()
        assert answer.readline() == b"\n"
        found.append((name.strip().removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    connection.close()
    return answer, found


def test_page_runs_its_own_scripts_only(live):
    answer, text = get(live, "/")
    assert answer.status == 200 and answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert len(text.encode()) <= 200_000
    policy = dict(part.split(" ", 1) for part in answer.headers["Content-Security-Policy"].split("; "))
    assert policy["default-src"] == "'none'" and policy["connect-src"] == "'self'" and "unsafe" not in str(policy)
    assert not re.findall(r"""(?:src|href)=["']?https?:""", text)  # nothing from elsewhere
    assert not re.findall(r"""<[^>]+ (?:on\w+|style)=""", text.split("<script", 1)[0])
    assert answer.headers["X-Content-Type-Options"] == "nosniff" and answer.headers["Cache-Control"] == "no-store"


def test_events_are_a_state_and_looks(live):
    answer, found = events(live, 12)
    assert answer.headers["Content-Type"] == "text/event-stream"
    names, versions = [name for name, _ in found], [data["version"] for _, data in found]
    assert names[0] == "state" and "look" in names and set(names) <= {"state", "look"}
    for before, name, version in zip(versions, names[1:], versions[1:], strict=False):
        assert version == before + 1 if name == "look" else version > before, "everything after one was missed"
    messages = [data["status"]["messages"] for _, data in found]
    assert messages == sorted(messages) and messages[-1] > messages[0]


def test_state_and_metrics(live):
    until(lambda: live.monitor.state()["status"]["messages"] > 0)
    _, text = get(live, "/state.json")
    state = json.loads(text)
    assert state["status"]["dataflow"] == "counted" and state["diagram"].startswith("<svg")
    answer, text = get(live, "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4") and "riot_ops_up" in text
    answer, text = get(live, "/", method="HEAD")
    assert (answer.status, text) == (200, "")
    assert get(live, "/../../etc/passwd")[0].status == 404


def test_end_of_the_run_ends_the_events():
    run = counted().launch([{"room": "a", "value": 1.0}])
    run.wait()
    with ro.live(run) as live:
        _, found = events(live, 2)
        assert [name for name, _ in found] == ["state", "end"] and found[0][1]["status"]["active"] is False


def test_name_of_another_site_is_refused(live):
    assert get(live, "/state.json", {"Host": "evil.example:80"})[0].status == 403
    assert get(live, "/state.json", {"Host": f"localhost:{live.port}"})[0].status == 200


def test_other_machines_need_a_token(live):
    with pytest.raises(ConfigError, match=r"url='http://0\.0\.0\.0' can be reached from other machines: give a token"):
        ro.live(live.monitor._run, url="http://0.0.0.0")
    with ro.live(live.monitor._run, url="http://0.0.0.0", token=ro.Secret("häßlich")) as guarded:
        guarded.host = "127.0.0.1"
        assert "häßlich" not in repr(guarded) + guarded.url
        answer, text = get(guarded, "/state.json")
        assert answer.status == 401 and "counted" not in text
        assert get(guarded, "/?token=wrong")[0].status == 401
        assert get(guarded, "/events")[0].status == 401
        answer, _ = get(guarded, "/?token=h%C3%A4%C3%9Flich")
        assert answer.status == 303 and answer.headers["Location"] == "/"
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
        assert get(guarded, "/state.json", {"Cookie": cookie.split(";")[0]})[0].status == 200
        bearer = {"Authorization": "Bearer häßlich".encode()}
        assert get(guarded, "/metrics", bearer)[0].status == 200


def test_port_in_use_is_told(live):
    with pytest.raises(ConnectorError, match=rf"cannot be served on 127\.0\.0\.1:{live.port}"):
        ro.live(live.monitor._run, url=live.url)


@pytest.mark.parametrize(
    "url", ["127.0.0.1", "https://127.0.0.1", "http://", "http://h:1:2", "http://h/x", "http://a@h", ""]
)
def test_address_that_is_none_is_refused(live, url):
    with pytest.raises(ConfigError, match=rf"url must be like 'http://127\.0\.0\.1:8080' .*got '{url}'"):
        ro.live(live.monitor._run, url=url)


def post(live, body=b"{}", path="/actions", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=20)
    given = {"Content-Type": "application/json", **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection.request("POST", path, body, {name: value for name, value in given.items() if value is not None})
    answer = connection.getresponse()
    return answer.status, answer.read().decode()


def test_nothing_can_be_changed_unless_allowed(live):
    assert [post(live, path=path)[0] for path in ("/actions", "/submit", "/", "/state.json")] == [404, 404, 405, 405]
    assert '<meta name="proof" content="">' in get(live, "/")[1]
    with pytest.raises(ConfigError, match="actions need a token"):
        LiveServer(live.monitor, actions=lambda request: None)


def test_actions_are_those_of_the_page_or_of_the_token(live):
    asked = []

    def act(request):
        asked.append(request)
        if request.get("fail"):
            raise ConfigError("it is refused")
        return {"n": 1} if not request.get("raise") else 1 / 0

    with LiveServer(live.monitor, token=ro.Secret("key"), actions=act) as server:
        own = f"http://127.0.0.1:{server.port}"
        cookie = get(server, "/?token=key")[0].headers["Set-Cookie"].split(";")[0]
        text = get(server, "/", {"Cookie": cookie})[1]
        proof = re.search(r'<meta name="proof" content="(\w+)">', text).group(1)
        page = {"Cookie": cookie, "Origin": own, "X_Riot_Ops_Proof": proof}
        body = b'{"do": "remove"}'
        assert post(server, body, **page) == (200, '{"result":{"n":1}}') and asked == [{"do": "remove"}]
        assert post(server, body, Authorization="Bearer key")[0] == 200  # a program with the token
        asked.clear()
        for refused, status in (
            ({"Cookie": None}, 401),
            ({"Cookie": cookie[:-1] + "x"}, 401),
            ({"Cookie": None, "Authorization": "Bearer wrong"}, 401),
            ({"X_Riot_Ops_Proof": None}, 403),  # a form of another site
            ({"X_Riot_Ops_Proof": "0" * 64}, 403),
            ({"Origin": None}, 403),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"http://127.0.0.1:{server.port + 1}"}, 403),
            ({"Origin": "http://evil.example", "Authorization": "Bearer key"}, 403),
            ({"Sec_Fetch_Site": "cross-site"}, 403),
            ({"Host": "evil.example"}, 403),
            ({"Content_Type": "text/plain"}, 415),
            ({"Content_Type": None}, 415),
            ({"Content_Length": "9000000"}, 413),
            ({"Content_Length": "x"}, 411),
        ):
            assert post(server, body, **page | refused)[0] == status, refused
        assert post(server, body, path="/actions?token=key", Origin=own)[0] == 401  # an address proves nothing
        assert asked == []
        assert post(server, b"{", **page)[0] == 400 and post(server, b"[1]", **page)[0] == 400
        assert post(server, b'{"fail": true}', **page) == (400, '{"error":"it is refused"}')
        assert post(server, b'{"raise": true}', **page) == (500, '{"error":"ZeroDivisionError"}')
        server.watched = None  # the run of the fixture goes on


@pytest.mark.long
def test_reader_that_does_not_read_is_left_behind(monkeypatch):
    """It holds neither the run nor what was looked at: a connection that takes nothing is closed."""
    monkeypatch.setattr("riot_ops.monitoring.server._Handler.timeout", 0.5)
    monitor = Endless()
    with LiveServer(monitor) as server:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect((server.host, server.port))
            slow.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")  # and reads nothing
            until(lambda: server.readers.count == 1, 60)
            until(lambda: server.readers.count == 0, 60)
        asked = monitor.asked
        until(lambda: monitor.version > asked + 5, 60)
        assert monitor.asked == asked, "nothing is made for a reader that has gone"
        with socket.create_connection((server.host, server.port)) as gone:
            gone.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            gone.recv(100)
        until(lambda: server.readers.count == 0, 60)


class Endless:
    """A monitor whose every look is a megabyte."""

    asked, active = 0, True
    look = b"event: state\ndata: " + b"x" * 1_000_000 + b"\n\n"

    @property
    def version(self):
        return time.monotonic_ns()

    def events(self, seen):
        self.asked += 1
        return self.version, self.look

    def state(self):
        return {"status": {"active": True}}

    def stop(self):
        pass


@pytest.mark.long
def test_fifty_readers_and_one_that_does_not_read(live):
    slow = socket.create_connection((live.host, live.port))
    slow.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")  # and reads nothing
    counts = []
    threads = [threading.Thread(target=lambda: counts.append(len(events(live, 5)[1]))) for _ in range(50)]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    assert counts == [5] * 50
    slow.close()


def test_report_shows_the_state_without_a_server(live, tmp_path):
    until(lambda: live.monitor.state()["status"]["messages"] > 0)
    live.save(tmp_path / "kept.html")
    text = (tmp_path / "kept.html").read_text(encoding="utf-8")
    kept = json.loads(re.search(r'id="kept">(.*?)</script>', text, re.DOTALL).group(1))
    assert kept["status"]["dataflow"] == "counted" and kept["points"]
    assert 'http-equiv="Content-Security-Policy"' in text and "frame-ancestors" not in text
    hostile = report({"rejected_records": [{"raw": HOSTILE}]})
    assert hostile.count("<script") == page().count("<script")
    kept = json.loads(re.search(r'id="kept">(.*?)</script>', hostile, re.DOTALL).group(1))
    assert kept == {"rejected_records": [{"raw": HOSTILE}]}
    scripts = re.findall(r"<script>(.*?)</script>", hostile, re.DOTALL)
    assert len(scripts) == 1 and security_policy().count("'sha256-") == 2

"""Access to the server: links, cookies, forged requests, keys, roles, projects, and bounds, over real HTTP."""

from __future__ import annotations

import hashlib
import re
import socket
from pathlib import Path

import httpx
import pytest

from holdfast.errors import UsageError
from holdfast.ids import system_entropy
from holdfast.serve.access import BROWSER_S, LINK_S, Access
from holdfast.serve.gate import FAILURES_MAX, LINES_MAX
from holdfast.serve.server import CONNECTIONS_MAX
from tests.fleet.clock import ManualClock
from tests.serve.served import API, Served, failure, serving


def test_a_link_logs_in_once(served: Served) -> None:
    with served.client(accept="text/html") as browser, served.client() as thief:
        assert browser.get("/").status_code == 401
        first = browser.get(served.link)
        assert first.status_code == 200
        (cookie,) = first.headers.get_list("set-cookie")
        assert re.search(r"; HttpOnly; .*; SameSite=strict$", cookie), cookie
        assert browser.get("/").status_code == 200
        message = failure(thief.get(served.link), 401, "link_invalid")
        assert "holdfast open" in message
        assert browser.get("/").status_code == 200, "the replay ended the login of the first browser"
    secret = browser.cookies[f"holdfast_{httpx.URL(served.url).port}"]
    kept = (served.home / "access.db").read_bytes()
    assert secret.encode() not in kept
    assert hashlib.sha256(secret.encode()).digest() in kept
    assert any(each["path"] == "/login" and each["status"] == 401 for each in served.refusals())


def test_links_and_logins_expire(tmp_path: Path) -> None:
    clock = ManualClock()
    access = Access(tmp_path, clock, system_entropy)
    _, late = access.issue("link", "ada", "admin", lives_s=LINK_S)
    _, used = access.issue("link", "ada", "admin", proof="login_link:7", lives_s=LINK_S)
    cookie = access.redeem(used)
    assert cookie is not None
    visitor = access.check("browser", cookie)
    assert visitor is not None
    assert visitor.caller.proof == "login_link:7"
    assert access.check("key", cookie) is None, "a cookie is no API key"
    clock.wall_us += (LINK_S + 1) * 1_000_000
    assert access.redeem(late) is None
    assert access.check("browser", cookie) is not None
    clock.wall_us += BROWSER_S * 1_000_000
    assert access.check("browser", cookie) is None
    assert access.all() == []
    with pytest.raises(UsageError, match="user name"):
        access.issue("key", "two words", "viewer")


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({}, "forged"),
        ({"x-csrf-token": "0" * 32}, "forged"),
        ({"sec-fetch-site": "cross-site"}, "cross_site"),
        ({"sec-fetch-site": "same-site"}, "cross_site"),
        ({"origin": "http://evil.example"}, "cross_site"),
        ({"origin": "null"}, "cross_site"),
    ],
)
def test_a_forged_post_changes_nothing(served: Served, headers: dict[str, str], kind: str) -> None:
    with served.browser() as browser:
        token = re.search(r'name="csrf" value="(\w+)"', browser.get("/devices").text)
        assert token is not None
        fields = {} if kind == "forged" else {"csrf": token[1]}
        refused = browser.post("/logout", data=fields, headers={"accept": "*/*", **headers})
        failure(refused, 403, kind)
        assert browser.get("/").status_code == 200
        done = browser.post("/logout", data={"csrf": token[1]}, headers={"sec-fetch-site": "same-origin"})
        assert done.status_code == 303
        browser.cookies.clear()
        assert browser.get("/").status_code == 401


def test_a_login_ends_on_the_server(served: Served) -> None:
    with served.browser() as browser, served.client() as copy:
        copy.cookies.update(browser.cookies)
        token = re.search(r'name="csrf" value="(\w+)"', browser.get("/devices").text)
        assert token is not None
        assert copy.get("/").status_code == 200
        browser.post("/logout", data={"csrf": token[1]})
        failure(copy.get("/"), 401, "not_logged_in")


def test_another_host_is_refused(served: Served, admin: str) -> None:
    with served.client(admin) as client:
        failure(client.get(API + "/sessions", headers={"host": "evil.example"}), 421, "wrong_host")
        port = httpx.URL(served.url).port
        assert client.get(API + "/sessions", headers={"host": f"localhost:{port}"}).status_code == 200


def test_each_role_may_do_so_much(served: Served, admin: str) -> None:
    viewer, operator = served.key("vera"), served.key("otto", "operator")
    with served.client(admin) as client:
        session = client.post(API + "/sessions", json={"goal": "say hi"}).json()["session_id"]
        before = len(client.get(f"{API}/sessions/{session}/events").json()["events"])
    with served.client(viewer) as client:
        assert client.get(f"{API}/sessions/{session}").status_code == 200
        for path in (f"/sessions/{session}/messages", "/sessions", f"/sessions/{session}/cancel", "/stop"):
            failure(client.post(API + path, json={}), 403, "forbidden")
    with served.client(operator) as client:
        failure(client.post(API + "/stop"), 403, "forbidden")
        failure(client.post(f"{API}/budgets/home:all", json={"period": "day", "cap_usd": 1}), 403, "forbidden")
        assert "admin" in failure(
            client.post(API + "/sessions", json={"goal": "x", "model": "openai:x@http://evil"}), 400, "invalid_request"
        )
        assert "admin" in failure(
            client.post(API + "/sessions", json={"goal": "x", "workspace": "/tmp"}), 400, "invalid_request"
        )
        sent = client.post(f"{API}/sessions/{session}/messages", json={"text": "more"}).json()
        event = client.get(f"{API}/sessions/{session}/events", params={"after": sent["seq"] - 1}).json()["events"][0]
    assert sent["seq"] > before, "a refused command reached the log"
    assert (event["type"], event["actor"]) == ("user.message", "user:otto")
    with served.client(admin) as client:
        assert client.post(API + "/stop").json()["stopped"] is True
        assert client.post(API + "/release").json()["stopped"] is False


def test_a_revoked_key_is_refused_by_the_running_server(served: Served) -> None:
    key = served.key("rita", "operator")
    with served.client(key) as client:
        assert client.get(API + "/sessions").status_code == 200
        failure(client.get(API + "/sessions", headers={"authorization": f"Basic {key}"}), 401, "not_logged_in")
        (credential,) = [each for each in served.access.all() if each.name == "rita"]
        served.access.revoke(credential.id)
        failure(client.get(API + "/sessions"), 401, "not_logged_in")
    assert key.encode() not in (served.home / "access.db").read_bytes()


def test_a_key_of_a_project_sees_nothing_else(served: Served, admin: str, folder: Path) -> None:
    inside, outside = folder / "inside", folder / "outside"
    for path in (inside, outside):
        path.mkdir()
        path.chmod(0o777)
    key = served.key("pia", "operator", str(inside))
    with served.client(admin) as client:
        other = client.post(API + "/sessions", json={"goal": "x", "workspace": str(outside), "key": "other"}).json()
    with served.client(key) as client:
        own = client.post(API + "/sessions", json={"goal": "x", "workspace": str(inside), "key": "own"}).json()
        assert [each["key"] for each in client.get(API + "/sessions").json()["sessions"]] == ["own"]
        assert client.get(f"{API}/sessions/own").json()["owner"] == "pia"
        for name in ("other", other["session_id"], other["session_id"][-8:]):
            message = failure(client.get(f"{API}/sessions/{name}/events"), 404, "not_found")
            assert str(outside) not in message
            failure(client.post(f"{API}/sessions/{name}/cancel"), 404, "not_found")
        failure(client.get(f"{API}/sessions/{own['session_id'][:6]}"), 404, "not_found")
        for place in ("/status", "/stream", "/budgets"):
            failure(client.get(API + place), 403, "forbidden")
        failure(client.get("/metrics"), 403, "forbidden")
        failure(client.post(API + "/sessions", json={"goal": "x"}), 400, "invalid_request")
        escape = f"{inside}/../outside"
        failure(client.post(API + "/sessions", json={"goal": "x", "workspace": escape}), 400, "invalid_request")
        failure(
            client.post(API + "/sessions", json={"goal": "x", "workspace": str(inside), "key": "other"}),
            400,
            "invalid_request",
        )


def test_a_large_body_is_refused_and_the_server_stays(served: Served, admin: str) -> None:
    with served.client(admin) as client:
        body = b'{"goal": "' + b"x" * 11_000_000 + b'"}'
        refused = client.post(API + "/sessions", content=body, headers={"content-type": "application/json"})
        failure(refused, 413, "too_large")
        chunked = client.post(API + "/sessions", content=iter([b"x" * 1_000_000] * 11))
        failure(chunked, 413, "too_large")
        failure(client.get("/healthz", headers={"x": "y" * 40_000}), 431, "too_large")
        assert client.get("/healthz").status_code == 200


def test_too_many_connections_are_closed_and_the_server_stays(served: Served, admin: str) -> None:
    url = httpx.URL(served.url)
    held = []
    try:
        for _ in range(CONNECTIONS_MAX + 50):
            held.append(socket.create_connection((url.host, url.port), timeout=30.0))
        closed = 0
        for each in held[CONNECTIONS_MAX + 10 :]:
            try:
                closed += each.recv(1) == b""
            except ConnectionResetError:
                closed += 1
        assert closed == 40
        held[0].setblocking(False)
        with pytest.raises(BlockingIOError):  # an earlier one is still open: it was not its age that ended the others
            held[0].recv(1)
    finally:
        for each in held:
            each.close()
    with served.client(admin) as client:
        assert client.get("/readyz").status_code == 200


def test_failed_logins_are_limited_and_recorded(tmp_path: Path) -> None:
    with serving(tmp_path / "home") as server:
        good = server.key("gus")
        with server.client("hf_wrong") as client:
            for _ in range(FAILURES_MAX):
                failure(client.get(API + "/sessions"), 401, "not_logged_in")
            wait = client.get(API + "/sessions")
            failure(wait, 429, "too_many_failures")
            assert int(wait.headers["retry-after"]) > 0
            for _ in range(LINES_MAX):
                client.get(API + "/sessions")
        with server.client(good) as client:
            assert client.get(API + "/sessions").status_code == 200, "others' failures locked a valid key out"
        lines = server.refusals()
        assert len(lines) == LINES_MAX
        assert {each["from"] for each in lines} == {"127.0.0.1"}
        assert "hf_wrong" not in (server.home / "logs" / "access.log").read_text()

"""Forks over HTTP: a key decides whether a fork exists already, and a fork belongs to the project of its origin."""

from __future__ import annotations

import re
from pathlib import Path

from tests.app.terminal import bash, script, turn
from tests.serve.served import API, ends, failure, serving


def test_a_session_is_forked_as_often_as_its_user_wants(tmp_path: Path, folder: Path, holdfast_home: Path) -> None:
    writer = script(tmp_path / "w.json", bash("echo one > a.txt"), bash("echo two > a.txt"), turn(text="Over."))
    with serving(holdfast_home, model=writer) as server:
        limited = server.client(server.key("bob", "operator", str(folder)))
        session = limited.post(API + "/sessions", json={"goal": "write", "workspace": str(folder)}).json()["session_id"]
        path = f"{API}/sessions/{session}"
        ends(limited, session)
        events = limited.get(f"{path}/events", params={"limit": 500}).json()["events"]
        results = [each["seq"] for each in events if each["type"] == "agent.tool_result"]
        kept = [each["data"]["through_seq"] for each in events if each["type"] == "workspace.snapshotted"]
        at = max(seq for seq in kept if results[0] <= seq < results[1])

        free = [limited.post(f"{path}/fork", json={"at": at}).json() for _ in range(2)]
        named = [limited.post(f"{path}/fork", json={"at": at, "key": "again"}).json() for _ in range(2)]
        assert len({each["session_id"] for each in (*free, *named)}) == 3
        assert [each["duplicate"] for each in (*free, *named)] == [False, False, False, True]
        assert (named[0]["origin"], named[0]["origin_seq"], named[0]["kept_seq"]) == (session, at, at)
        assert "already names" in failure(
            limited.post(f"{path}/fork", json={"at": at + 1, "key": "again"}), 400, "invalid_request"
        )
        assert "first snapshot" in failure(limited.post(f"{path}/fork", json={"at": 1}), 400, "invalid_request")
        failure(limited.post(f"{path}/fork", json={"at": 9_999}), 400, "invalid_request")
        failure(limited.post(f"{path}/fork", json={"at": at, "key": "-x"}), 400, "invalid_request")

        with server.client(server.key("ada", "admin")) as admin:
            other = admin.post(API + "/sessions", json={"goal": "x", "key": "taken"}).json()["session_id"]
        refused = failure(limited.post(f"{path}/fork", json={"at": at, "key": "taken"}), 400, "invalid_request")
        assert "outside the project" in refused
        assert other not in refused

        assert limited.get(f"{API}/sessions/again").json()["state"] == "parked"  # its user sees it, and it waits
        limited.post(f"{API}/sessions/again/resume")
        ends(limited, "again")
        assert limited.get(f"{API}/sessions/again/file", params={"path": "a.txt"}).content == b"two\n"
        limited.close()

        with server.browser() as browser:

            def form() -> dict[str, str]:
                page = browser.get(f"/sessions/{session}?at={at}").text
                (fields,) = re.findall(r'action="/sessions/\w+/fork".*?</form>', page, re.DOTALL)
                return dict(re.findall(r'name="(\w+)" value="([^"]+)"', fields))

            first, second = form(), form()
            made = [browser.post(f"/sessions/{session}/fork", data=each) for each in (first, first, second)]
            assert [each.status_code for each in made] == [303] * 3
            assert made[0].headers["location"] == made[1].headers["location"] != made[2].headers["location"]

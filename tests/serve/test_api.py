"""The API over real HTTP: its description agrees with its routes, commands reach the log, errors have one form."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import httpx
import msgspec
import pytest

from holdfast.serve.api import OPERATIONS, routes
from holdfast.serve.api.openapi import document
from tests.app.terminal import bash, script, turn, typed
from tests.serve.served import API, Served, ends, failure, serving
from tests.support.waiting import PATIENCE_S


def test_the_description_agrees_with_the_routes(served: Served, admin: str) -> None:
    with served.client(admin) as client:
        told = client.get(API + "/openapi.json").json()
    assert told == msgspec.json.decode(msgspec.json.encode(document(OPERATIONS)))
    described = {(path, method) for path, verbs in told["paths"].items() for method in verbs}
    routed = {
        (route.path, method.lower())
        for route in routes(None)  # type: ignore[arg-type]
        for method in route.methods or ()
        if method != "HEAD" and not route.path.endswith("openapi.json")
    }
    assert described == routed
    ids = [verb["operationId"] for verbs in told["paths"].values() for verb in verbs.values()]
    assert len(set(ids)) == len(ids)
    references = set(re.findall(r'"\$ref":"#/components/schemas/(\w+)"', msgspec.json.encode(told).decode()))
    assert references <= set(told["components"]["schemas"])


def test_what_is_read_has_the_described_type(served: Served, admin: str) -> None:
    with served.client(admin) as client:
        session = client.post(API + "/sessions", json={"goal": "say hi"}).json()["session_id"]
        ends(client, session)
        read = set()
        for each in OPERATIONS:
            if each.method == "GET" and each.result is not None and "{item}" not in each.path:
                if each.path.endswith("/files"):
                    continue  # there is no snapshot without a tool call: see below
                words = {"q": "hi"} if each.path == "/search" else {}
                response = client.get(API + each.path.format(session=session), params=words)
                assert response.status_code == 200, response.text
                msgspec.json.decode(response.content, type=each.result)
                read.add(each.path)
        assert len(read) > 7
        assert client.get("/healthz").json() == client.get("/readyz").json() == {"status": "ok"}
        metrics = client.get("/metrics").text
    assert re.search(r'^holdfast_sessions\{state="done"\} [1-9]\d*$', metrics, re.MULTILINE)
    assert re.search(r'^holdfast_spend_dollars\{model="scripted:[^"]+"\} 0$', metrics, re.MULTILINE)
    assert "holdfast_inbox_oldest_seconds 0\n" in metrics
    assert "holdfast_items_oldest_seconds 0\n" in metrics


def test_commands_reach_the_log_once(served: Served, admin: str) -> None:
    with served.client(admin) as client:
        first = client.post(API + "/sessions", json={"goal": "say hi", "key": "once", "max_turns": 9}).json()
        again = client.post(API + "/sessions", json={"goal": "say more", "key": "once"}).json()
        assert again["session_id"] == first["session_id"]
        ends(client, "once")
        key = {"idempotency-key": "retry-1"}
        sent = [client.post(f"{API}/sessions/once/messages", json={"text": "hm"}, headers=key).json() for _ in "ab"]
        assert [each["duplicate"] for each in sent] == [False, True]
        assert sent[0]["seq"] == sent[1]["seq"]
        ends(client, "once")
        events = client.get(f"{API}/sessions/once/events", params={"types": "user.message"}).json()["events"]
        assert [each["seq"] for each in events] == [sent[0]["seq"]]
        for period, cap in (("total", 5), ("day", 2.5), ("day", None)):
            client.post(f"{API}/sessions/once/budget", json={"period": period, "cap_usd": cap})
        own, home = client.get(f"{API}/sessions/once/budget").json()["accounts"]
        assert (own["total"]["cap_usd"], own["day"]["cap_usd"], home["account_id"]) == (5, None, "home:all")
        assert client.get(f"{API}/sessions/once/verify").json()["ok"] is True
        assert client.post(f"{API}/sessions/once/cancel", json={"reason": "enough"}).json()["seq"] is not None
        ends(client, "once", "cancelled")
        assert client.post(f"{API}/sessions/once/cancel").json() == {
            "session_id": first["session_id"],
            "seq": None,
            "duplicate": True,
        }
        listed = client.get(API + "/sessions", params={"filter": "is:cancelled", "limit": 1}).json()
        assert [each["key"] for each in listed["sessions"]] == ["once"]


def test_pages_of_sessions_lose_none(served: Served, admin: str) -> None:
    with served.client(admin) as client:
        made = [client.post(API + "/sessions", json={"goal": f"page {n}"}).json()["session_id"] for n in range(5)]
        found, after = [], ""
        while after is not None:
            page = client.get(
                API + "/sessions", params={"filter": "page", "limit": 2, **({"after": after} if after else {})}
            ).json()
            found += [each["session_id"] for each in page["sessions"]]
            after = page["next"]
    assert found == made[::-1]


@pytest.mark.parametrize(
    ("path", "status", "kind", "piece"),
    [
        ("/sessions?limit=0", 400, "invalid_request", "limit"),
        ("/sessions?limit=2&limit=3", 400, "invalid_request", "twice"),
        ("/sessions?nope=1", 400, "invalid_request", "nope"),
        ("/sessions?filter=colour:red", 400, "invalid_request", "Filters:"),
        ("/sessions?filter=%22", 400, "invalid_request", "filter"),
        ("/sessions?after=ses_none", 404, "not_found", "ses_none"),
        ("/sessions/ses_none/events", 404, "not_found", "ses_none"),
        ("/sessions/last/events?after=-1", 400, "invalid_request", "after"),
        ("/sessions/last/file?path=x", 400, "invalid_request", "snapshot"),
        ("/sessions/last/brief?since=1000000", 400, "invalid_request", "last event"),
        ("/inbox/itm_none", 404, "not_found", "itm_none"),
        ("/nothing", 404, "not_found", "address"),
        ("/sessions/last/messages", 405, "invalid_request", "Method"),
    ],
)
def test_a_bad_request_is_one_sentence(
    served: Served, admin: str, path: str, status: int, kind: str, piece: str
) -> None:
    with served.client(admin) as client:
        client.post(API + "/sessions", json={"goal": "x", "key": "bad"})
        message = failure(client.get(API + path), status, kind)
        assert piece in message
        assert "\n" not in message


def test_a_bad_body_is_one_sentence(served: Served, admin: str) -> None:
    with served.client(admin) as client:
        for body, kind in (
            (b"{", "application/json"),
            (b'{"goal": 3}', "application/json"),
            (b'{"goal": "x", "more": 1}', "application/json"),
            (b'{"goal": "\xff"}', "application/json"),
            (b"", "application/json"),
        ):
            failure(
                client.post(API + "/sessions", content=body, headers={"content-type": kind}), 400, "invalid_request"
            )
        failure(client.post(API + "/sessions", content=b"goal=x"), 415, "invalid_request")
        for path in ("sessions/last/events/stream", "stream"):
            failure(client.get(f"{API}/{path}", headers={"last-event-id": "x"}), 400, "invalid_request")


def test_what_the_server_is_not_set_up_for_is_no_error_of_the_server(served: Served, admin: str) -> None:
    """A model without a key is refused before a session is opened, with the name of the key."""
    with served.client(admin) as client:
        wanted = {"goal": "x", "key": "keyless", "model": "anthropic:claude-sonnet-5"}
        assert "ANTHROPIC_API_KEY" in failure(client.post(API + "/sessions", json=wanted), 409, "cannot_run")
        failure(client.get(API + "/sessions/keyless"), 404, "not_found")


@pytest.fixture
def writer(tmp_path: Path) -> str:
    """A model that writes a file, asks before it changes it, and ends."""
    return script(
        tmp_path / "writer.json",
        bash("echo one > a.txt; mkdir -p d; echo deep > d/b"),
        bash("echo two > a.txt"),
        turn(text="Over."),
    )


def test_files_of_then_are_listed_and_read(writer: str, holdfast_home: Path) -> None:
    with serving(holdfast_home, model=writer) as server:
        with server.client(server.key("ada", "admin")) as client:
            client.post(API + "/sessions", json={"goal": "write", "key": "k"})
            ends(client, "k")
            events = client.get(f"{API}/sessions/k/events", params={"limit": 500}).json()["events"]
            kept = [each["data"]["through_seq"] for each in events if each["type"] == "workspace.snapshotted"]
            results = [each["seq"] for each in events if each["type"] == "agent.tool_result"]
            at = max(seq for seq in kept if results[0] <= seq < results[1])
            then = client.get(f"{API}/sessions/k/files", params={"at": at}).json()
            assert (then["files"], then["total"], then["kept_seq"]) == (["a.txt", "d/b"], 2, at)
            read = client.get(f"{API}/sessions/k/file", params={"path": "a.txt", "at": at})
            assert (read.content, read.headers["content-disposition"]) == (b"one\n", "attachment")
            assert client.get(f"{API}/sessions/k/file", params={"path": "a.txt"}).content == b"two\n"
            assert client.get(f"{API}/sessions/k/file", params={"path": "d/b"}).content == b"deep\n"
            failure(client.get(f"{API}/sessions/k/file", params={"path": "../a.txt"}), 400, "invalid_request")


def test_two_users_answer_at_once_and_one_decides(tmp_path: Path, writer: str, holdfast_home: Path) -> None:
    asked = typed("run", "x", "--model", writer, "--session-id", "k", "--no-sandbox", "--ask", "bash", "--json")
    assert asked.code == 3, asked
    with serving(holdfast_home, model=writer) as server:
        names = ("ada", "bob")
        clients = [server.client(server.key(name, "operator")) for name in names]
        (item,) = clients[0].get(API + "/inbox").json()["items"]
        path = f"{API}/inbox/{item['item_id']}/answer"
        wrong = clients[0].post(path, json={"verdict": "approve", "digest": "0" * 64})
        assert "digest" in failure(wrong, 400, "invalid_request")
        failure(clients[0].post(path, json={"verdict": "approve"}), 400, "invalid_request")
        both, answers = threading.Barrier(2), dict[str, httpx.Response]()

        def answer(name: str, client: httpx.Client, verdict: str) -> None:
            both.wait(PATIENCE_S)
            answers[name] = client.post(path, json={"verdict": verdict, "digest": item["digest"]})

        threads = [
            threading.Thread(target=answer, args=each) for each in zip(names, clients, ("approve", "deny"), strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_S)
        first, second = sorted(names, key=lambda name: answers[name].status_code)
        decided = answers[first].json()
        assert decided["by"] == first
        assert f"by {first} (with the API key" in failure(answers[second], 409, "item_closed")
        again = clients[names.index(first)].post(path, json={"verdict": decided["verdict"], "digest": item["digest"]})
        assert (again.json()["duplicate"], again.json()["seq"]) == (True, decided["seq"])
        closed = clients[0].get(f"{API}/inbox/{item['item_id']}").json()["decision"]
        assert closed["by"] == first
        assert closed["proof"].startswith("api_key:key_")
        events = clients[0].get(f"{API}/sessions/k/events", params={"limit": 500}).json()["events"]
        assert [each["actor"] for each in events if each["type"] == "approval.decided"] == [f"user:{first}"]
        clients[0].post(f"{API}/sessions/k/cancel")
        ends(clients[0], "k", "cancelled")  # its hands go with it; those of a session that goes on stay for two minutes
        for client in clients:
            client.close()

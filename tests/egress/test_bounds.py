"""Where a policy bounds methods or paths, no header, query, form, or spelling of a path leads to others."""

from __future__ import annotations

import contextlib
from pathlib import Path

import anyio
import pytest

from holdfast.app.settings.tables import destinations
from holdfast.facts.session import Destination, EgressPolicy, SecretUse
from tests.egress.told_driver import HOSTS, Client, Scene, request, scene

OVERRIDES = (
    "X-HTTP-Method-Override: DELETE", "x-http-method: DELETE", "X-Method-Override: DELETE", "X-METHOD: DELETE",
    "X_HTTP_Method_Override: DELETE", "X-HTTP-Method-Overrides: DELETE", "X-Original-URL: /admin",
    "X-Original-URI: /admin", "X-Rewrite-URL: /admin", "X-Rewrite-Uri: /admin", "X-Forwarded-For: 127.0.0.1",
    "X-Forwarded-Host: two.test", "X-Forwarded-Prefix: /admin", "X-Forwarded-Method: DELETE",
    "X-Forwarded-Uri: /admin", "Forwarded: host=two.test", "X-Host: two.test", "X-HTTP-Host-Override: two.test",
    "X-Real-IP: 127.0.0.1", "X-Envoy-Original-Path: /admin", "X-Accel-Redirect: /admin", "X-Override-URL: /admin",
    "X-Waws-Unencoded-Url: /admin", "Request-URI: /admin", "Destination: /admin", "X-Proxy-URL: /admin",
    "X-Team: red", "Depth: infinity", "Max-Forwards: 0", "SOAPAction: delete", "Cf-Connecting-Ip: 127.0.0.1",
)  # fmt: skip
QUERIES = (
    "_method=DELETE", "a=b&_method=DELETE", "a=b;_method=DELETE", "_METHOD=delete", "%5fmethod=DELETE",
    "%255Fmethod=DELETE", "_method[]=DELETE", "_method[a]=DELETE", "+_method=DELETE", "%20_method=DELETE",
    ".method=DELETE", "[method=DELETE", "_method%00x=DELETE", "a=b%26_method=DELETE", "__method=DELETE",
    "X-HTTP-Method-Override=DELETE", "x-http-method=DELETE", "$httpMethod=DELETE", "%24httpMethod=DELETE",
    "_http_method=DELETE", "_m%65thod=DELETE",
)  # fmt: skip
PATHS = (
    "/free/../admin", "/free/%2e%2e/admin", "/free/.%2E/admin", "/free/%252e%252e/admin", "/free/%25252e./admin",
    "/free/%c0%ae%c0%ae/admin", "/free/.%c0%ae/admin", "/free/%e0%80%ae%e0%80%ae/admin", "/free/%c0%2e%c0%2e/admin",
    "/free/%c0%ae%c0%ae%c0%afadmin", "/free/..;/admin", "/free/..;a=b/admin", "/free/%2e%2e;/admin",
    "/free/.;/admin", "/free/..%3b/admin", "/free/..\\admin", "/free/..%5cadmin", "/free/..%255cadmin",
    "/free/%EF%BC%8E%EF%BC%8E/admin", "/free/.%EF%BC%8E/admin", "/free/%E2%80%A5/admin", "/free/%E2%80%A6/admin",
    "/free/%E2%80%A4%E2%80%A4/admin", "/free/%EF%B9%92%EF%B9%92/admin", "/free/..%EF%BC%8Fadmin",
    "/free/a%E2%88%95..%E2%88%95admin", "/free/.%E2%80%8B./admin", "/free/%E2%80%8D../admin", "/free/%20../admin",
    "/free/..%20/admin", "/free/..%c2%a0/admin", "/free/..%09/admin", "/free/..x/admin", "/free/..../admin",
    "/free/..%2fadmin", "/free/%2e%2e%2fadmin", "/free/..%00/admin", "/free/%u002e%u002e/admin", "/free//../admin",
    "/free/.%cc%81./admin", "/free/..%ef%bb%bf/admin", "/free/a/../../admin",
)  # fmt: skip
FORMS = (
    ("application/x-www-form-urlencoded", b"_method=DELETE"),
    ("application/x-www-form-urlencoded", b"a=b&_method=DELETE"),
    ("application/x-www-form-urlencoded", b"a=b&%5Fm%65thod=DELETE"),
    ("application/x-www-form-urlencoded", b"a=" + b"b" * 100_000 + b"&_METHOD=DELETE"),
    ("Application/X-WWW-Form-Urlencoded; charset=utf-8", b"a=b&_method[]=DELETE"),
    (
        "multipart/form-data; boundary=x",
        b'--x\r\nContent-Disposition: form-data; name="_method"\r\n\r\nDELETE\r\n--x--',
    ),
)
ORDINARY = (
    ("GET", "/free/a?method=x&payment_method=card&page=2", ("Accept: */*", "Sec-Fetch-Mode: cors", "X-Request-Id: 1")),
    ("GET", "/free/a.b/.well-known/x..y/v1.2..3;v=1", ("User-Agent: curl/8", "X-Stainless-Lang: python")),
    ("GET", "/free/caf%C3%A9/%E6%97%A5%E6%9C%AC/a%20b", ("If-None-Match: x", "Git-Protocol: version=2", "Cookie: a=b")),
    ("GET", "/free/a?q=%2e%2e%2f_method", ("Anthropic-Version: 2023-06-01", "X-GitHub-Api-Version: 2022-11-28")),
    ("GET", "/free/", ("X-Mine: named by the policy", "Range: bytes=0-1", "Content-Language: en")),
)


def bounded(given: Scene) -> EgressPolicy:
    """A secret with bounds, and a place with bounds beside one without."""
    use = SecretUse("token", HOSTS[:1], "TOKEN", methods=("GET", "POST"), paths=("/free/*",), headers=("X-Mine",))
    place = Destination(HOSTS[0], methods=("GET", "POST"), paths=("/free/*",), headers=("x-mine",))
    return EgressPolicy(allow=(place, Destination(HOSTS[1])), secrets=(use, SecretUse("token", HOSTS[1:])))


def ask(client: Client, data: bytes, host: str = HOSTS[0]) -> bytes:
    """The first line of the answer."""
    said = b""
    with client.connect(host) as sock, contextlib.suppress(OSError):
        sock.sendall(data)
        while b"\r\n" not in said and (more := sock.recv(65536)):
            said += more
    return said.partition(b"\r\n")[0]


def form(kind: str, body: bytes, *, path: str = "/free/form") -> bytes:
    """A request with a form."""
    lines = (f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close")
    return request(HOSTS[0], path, *lines, method="POST") + body


ATTACKS = {
    **{f"header {line}": request(HOSTS[0], "/free/x", line) for line in OVERRIDES},
    **{f"query {query}": request(HOSTS[0], f"/free/x?{query}") for query in QUERIES},
    **{f"path {path}": request(HOSTS[0], path) for path in PATHS},
}


async def test_no_other_method_or_path_is_reached(tmp_path: Path) -> None:
    async with scene(tmp_path) as given:
        client = await given.open(bounded(given))
        bearer = f"Authorization: Bearer {client.gateway.env['TOKEN']}".encode()
        through = []
        for name, data in ATTACKS.items():
            for whole in (data, data[:-2] + bearer + b"\r\n\r\n"):
                said = await anyio.to_thread.run_sync(ask, client, whole)
                if not said.startswith((b"HTTP/1.1 403", b"HTTP/1.1 400")):
                    through.append((name, said))
        assert through == []
        assert given.world.seen == []


async def test_no_form_changes_the_method(tmp_path: Path) -> None:
    async with scene(tmp_path) as given:
        client = await given.open(bounded(given))
        for kind, body in FORMS:
            said = await anyio.to_thread.run_sync(ask, client, form(kind, body))
            assert not said.startswith(b"HTTP/1.1 200"), body[:80]
        assert all(b"method" not in seen.body.lower() for seen in given.world.seen)
        assert len(given.world.seen) <= 1  # the long one, cut off in the middle
        for body in (b"payment_method=card&method=a", b"a=_methodical", b"text=the+method=DELETE"):
            ordinary = form("application/x-www-form-urlencoded", body)
            assert (await anyio.to_thread.run_sync(ask, client, ordinary)).startswith(b"HTTP/1.1 200"), body
        assert (await anyio.to_thread.run_sync(ask, client, form("application/json", b'{"_method": 1}'))).startswith(
            b"HTTP/1.1 200"
        )


async def test_ordinary_requests_pass(tmp_path: Path) -> None:
    async with scene(tmp_path) as given:
        client = await given.open(bounded(given))
        for method, path, lines in ORDINARY:
            data = request(HOSTS[0], path, *lines, method=method)
            assert (await anyio.to_thread.run_sync(ask, client, data)).startswith(b"HTTP/1.1 200"), path
        assert [seen.path for seen in given.world.seen] == [path for _, path, _ in ORDINARY]
        assert given.world.seen[-1].headers["x-mine"] == "named by the policy"


async def test_a_place_without_bounds_takes_any_header(tmp_path: Path) -> None:
    async with scene(tmp_path) as given:
        client = await given.open(bounded(given))
        data = request(HOSTS[1], "/..x?_method=DELETE", "X-HTTP-Method-Override: DELETE", "X-Team: red")
        assert (await anyio.to_thread.run_sync(ask, client, data, HOSTS[1])).startswith(b"HTTP/1.1 200")
        assert given.world.seen[-1].headers["x-team"] == "red"


async def test_a_refused_header_is_named(tmp_path: Path) -> None:
    async with scene(tmp_path) as given:
        client = await given.open(bounded(given))
        said = await anyio.to_thread.run_sync(client.get, HOSTS[0], "/free/x", "X-Team: red")
        assert b"the header x-team is not among those" in said
        assert b"`headers`" in said
        (seen,) = [seen for seen in (await given.egress().notes("ses_told", 0)).seen if seen.verdict == "refused"]
        assert "x-team" in seen.reason


def test_a_policy_names_further_headers() -> None:
    (place,) = destinations([{"host": "a.test", "methods": ["GET"], "headers": ["X-Team", "x-team", "Depth"]}])
    assert place.headers == ("x-team", "depth")


@pytest.mark.parametrize(
    "name",
    ["X-HTTP-Method-Override", "X-Original-URL", "X-Forwarded-For", "Forwarded", "x team", "x_team", "X-Team: a", "é"],
)
def test_a_policy_names_no_override(name: str) -> None:
    with pytest.raises(ValueError, match="no header"):
        destinations([{"host": "a.test", "methods": ["GET"], "headers": [name]}])

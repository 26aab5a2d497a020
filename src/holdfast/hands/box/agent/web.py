"""web_fetch and web_search: from the sandbox, through the session's proxy, which alone decides on access."""

from __future__ import annotations

import json
import re
import socket
import time
import zlib
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

from holdfast.hands.box.agent import web_text
from holdfast.hands.box.agent.text import Refusal, is_binary

Connection = Any
Response = Any
"""Types of `http.client`, imported where it is used: its mail parser loads slowly, and few calls need it."""

BODY_MAX = 5 << 20
"""Maximum bytes read of a page."""

REDIRECTS_MAX = 5
SILENCE_S = 20.0
"""Seconds that a server may stay silent."""

FETCH_S = 60.0
"""Seconds that a page may take with all its redirects."""

RESULTS_SHOWN = 10
SNIPPET_MAX = 300

_AGENT = "holdfast (web_fetch)"
_NEAR = frozenset({"localhost", "127.0.0.1", "::1"})
_TEXT_TYPES = ("text/", "application/json", "application/xml", "application/javascript", "application/x-yaml")
_TEXT_ENDS = ("+json", "+xml", "/yaml", "/toml", "/x-sh", "/ecmascript", "/graphql")
_HTML = ("text/html", "application/xhtml+xml")


class Page:
    """An answer: its final address, status, type, and the body as far as it was read."""

    def __init__(self, url: str, response: Response, body: bytes, whole: bool) -> None:
        self.url = url
        self.status = response.status
        self.reason = response.reason
        self.type = response.headers.get_content_type()
        self.charset = response.headers.get_content_charset() or ""
        self.length = response.headers.get("Content-Length", "")
        self.body = body
        self.whole = whole


def fetch(given: dict[str, Any], place: dict[str, Any], cap: int) -> dict[str, Any]:
    """Return a page as text. A page that was not read has no bytes and holds no untrusted content."""
    try:
        return page_text(given, place, cap)
    except Refusal as refusal:
        return {"ok": False, "output": str(refusal), "bytes_total": 0}


def page_text(given: dict[str, Any], place: dict[str, Any], cap: int) -> dict[str, Any]:
    """Return a page as text. Raises `Refusal` if it cannot be reached or is not text."""
    page = _get(str(given["url"]), place["env"], {}, time.monotonic() + FETCH_S)
    size = f"{len(page.body)} bytes" if page.whole else f"more than {BODY_MAX} bytes, cut there"
    head = f"{page.url}\n{page.status} {page.reason}, {page.type}, {size}"
    if not _is_text(page):
        told = page.length or len(page.body)
        raise Refusal(
            f"{page.url} is {page.type} of {told} bytes: no text, so it is not shown. If it is needed as a file, get "
            "it with a command, for example: curl -fLO URL"
        )
    text = web_text.decoded(page.body, page.charset)
    if page.type in _HTML and not given.get("raw"):
        title, text = web_text.readable(text, page.url)
        head += f"\ntitle: {title}" if title else ""
    return {"ok": page.status < 400, **_part(head, text, int(given.get("after") or 0), cap)}


def _part(head: str, text: str, after: int, cap: int) -> dict[str, Any]:
    """Return as much of the text as fits, from that character on."""
    shown = text[after:].encode("utf-8", "replace")[: max(1_000, cap - len(head) - 200)].decode("utf-8", "ignore")
    through = after + len(shown)
    told = [head, "", shown or "[nothing to read]"]
    if through < len(text) or after:
        more = f"; call again with after={through} for more" if through < len(text) else ""
        told += ["", f"[characters {after} to {through} of {len(text)}{more}]"]
    output = "\n".join(told)
    total = len(text.encode("utf-8", "replace"))
    return {"output": output, "bytes_total": total, "truncated": False}


def _is_text(page: Page) -> bool:
    if is_binary(page.body) and not page.body.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    if page.type.startswith(_TEXT_TYPES) or page.type.endswith(_TEXT_ENDS) or page.type in _HTML:
        return True
    try:
        page.body[:65_536].decode("utf-8")
    except UnicodeDecodeError as error:
        return page.type == "application/octet-stream" and error.start > 65_000  # cut inside a character
    return True


def search(given: dict[str, Any], place: dict[str, Any], cap: int) -> dict[str, Any]:
    """Return the results of the first provider that has some. The harness passes the providers with the query."""
    problems: list[str] = []
    answered = False
    for each in given.get("searchers") or ():
        try:
            results = _asked(each, str(given["query"]), place["env"])
        except (Refusal, OSError, ValueError) as error:
            problems.append(f"[{each['name']}: {error}]")
            continue
        answered = True
        if results:
            return {"ok": True, "output": "\n\n".join(results)[:cap]}
        problems.append(f"[{each['name']}: no results]")
    if not problems:
        return {"ok": False, "output": NO_PROVIDER, "bytes_total": 0}
    return {"ok": answered, "output": "\n".join(problems)}


NO_PROVIDER = (
    "web_search has no provider here, so nothing was searched. A person sets one up in the configuration, under "
    "[search.NAME], with a url that holds {query}, and where the results stand in the answer. Go on with "
    "web_fetch if you know an address."
)


def _asked(each: dict[str, Any], query: str, env: dict[str, str]) -> list[str]:
    headers = {"Accept": "application/json"}
    if each.get("variable"):
        placeholder = env.get(each["variable"], "")
        if not placeholder:
            raise Refusal(f"its secret is not there: the variable {each['variable']} is empty in these hands")
        bearer = each["header"].lower() == "authorization"
        headers[each["header"]] = f"Bearer {placeholder}" if bearer else placeholder
    page = _get(each["url"].replace("{query}", quote(query, safe="")), env, headers, time.monotonic() + FETCH_S)
    text = web_text.decoded(page.body, page.charset)
    if page.status != 200:
        raise Refusal(f"it answered {page.status} {page.reason}: {' '.join(text.split())[:200]}")
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        raise Refusal("its answer is no JSON") from None
    return _results(each, found)


def _results(each: dict[str, Any], found: Any) -> list[str]:
    for part in each["results"].split(".") if each["results"] else ():
        found = _inner(found, part)
    if not isinstance(found, list):
        raise Refusal(f"its answer has no list at {each['results']!r}")
    told = []
    for number, result in enumerate(found[:RESULTS_SHOWN], 1):
        title, link, snippet = (_said(result, each[name]) for name in ("title", "link", "snippet"))
        told.append("\n   ".join(line for line in (f"{number}. {title or '(no title)'}", link, snippet) if line))
    return told


def _inner(found: Any, part: str) -> Any:
    if isinstance(found, dict):
        return found.get(part)
    if isinstance(found, list) and part.isdigit() and int(part) < len(found):
        return found[int(part)]
    return None


def _said(result: Any, path: str) -> str:
    for part in path.split("."):
        result = _inner(result, part)
    text = result if isinstance(result, str) else ""
    return " ".join(text.split())[: web_text.LINK_MAX] if "<" not in text else web_text.plain(text)[:SNIPPET_MAX]


# --- the network ----------------------------------------------------------------------------------


def _get(url: str, env: dict[str, str], headers: dict[str, str], deadline: float) -> Page:
    """Send a GET and follow redirects: each is checked by the proxy again and carries no credentials."""
    from http.client import HTTPException

    for _ in range(REDIRECTS_MAX + 1):
        response, connection = _request(url, env, headers)
        try:
            if response.status in (301, 302, 303, 307, 308) and response.headers.get("Location"):
                url, before = urljoin(url, response.headers["Location"]), url
                headers = headers if urlsplit(url).netloc == urlsplit(before).netloc else {}
                continue
            body, whole = _body(response, deadline)
            return Page(url, response, body, whole)
        except (OSError, HTTPException, zlib.error) as error:
            raise Refusal(f"{url} was not read to its end: {str(error) or type(error).__name__}") from None
        finally:
            connection.close()
    raise Refusal(f"{url}: more than {REDIRECTS_MAX} redirects; it was not read")


def _request(url: str, env: dict[str, str], headers: dict[str, str]) -> tuple[Response, Connection]:
    from http.client import HTTPException

    secure, host, port = _address(url)
    where = urlsplit(url)
    path = quote(where.path or "/", safe="/%:@!$&'()*+,;=~-._")
    if where.query:
        path += "?" + quote(where.query, safe="/%:@!$&'()*+,;=?~-._[]")
    accept = {"User-Agent": _AGENT, "Accept": "text/html, text/markdown, text/*, application/json;q=0.9, */*;q=0.5"}
    try:
        connection, absolute = _connected(secure, host, port, env)
        target = f"http://{_authority(host, port, 80)}{path}" if absolute else path
        sent = {**accept, "Accept-Encoding": "gzip, identity", "Connection": "close", **headers}
        sent["Host"] = _authority(host, port, 443 if secure else 80)
        connection.request("GET", target, headers=sent)
        return connection.getresponse(), connection
    except (OSError, HTTPException, ValueError) as error:
        raise Refusal(f"{url} cannot be reached: {_why(error, env)}") from None


def _why(error: Exception, env: dict[str, str]) -> str:
    told = str(error) or type(error).__name__
    if not _proxy_of(env, True):
        told += ". The sandbox has no network access; the user can allow hosts with `holdfast egress`"
    return told


def _address(url: str) -> tuple[bool, str, int]:
    try:
        where = urlsplit(url)
        port = where.port
    except ValueError as error:
        raise Refusal(f"{url[:200]!r} is no address: {error}") from None
    if where.scheme not in ("http", "https") or not where.hostname:
        raise Refusal(f"{url[:200]!r} is no address of a web page: it begins with http:// or https:// and names a host")
    if where.username is not None or where.password is not None:
        raise Refusal("an address with a name and password in it is not asked for; leave them out")
    try:
        host = where.hostname if where.hostname.isascii() else where.hostname.encode("idna").decode()
    except UnicodeError:
        host = ""
    if not re.fullmatch(r"[A-Za-z0-9._:-]{1,253}", host):
        raise Refusal(f"{where.hostname[:200]!r} is no name of a host")
    secure = where.scheme == "https"
    return secure, host, port or (443 if secure else 80)


def _authority(host: str, port: int, usual: int) -> str:
    name = f"[{host}]" if ":" in host else host
    return name if port == usual else f"{name}:{port}"


def _proxy_of(env: dict[str, str], secure: bool) -> tuple[str, int] | None:
    name = "https_proxy" if secure else "http_proxy"
    where = urlsplit(env.get(name) or env.get(name.upper()) or "")
    return (where.hostname, where.port or 3128) if where.hostname else None


def _connected(secure: bool, host: str, port: int, env: dict[str, str]) -> tuple[Connection, bool]:
    """Connect to a server; True if requests must carry the whole address for the proxy to forward."""
    import ssl
    from http.client import HTTPConnection

    proxy = None if host in _NEAR else _proxy_of(env, secure)
    connection = HTTPConnection(host, port, timeout=SILENCE_S)
    sock = socket.create_connection(proxy or (host, port), timeout=SILENCE_S)
    try:
        if secure:
            if proxy is not None:
                _tunnel(sock, _authority(host, port, 0))
            context = ssl.create_default_context(cafile=env.get("SSL_CERT_FILE") or None)
            sock = context.wrap_socket(sock, server_hostname=host)
    except BaseException:
        sock.close()
        raise
    connection.sock = sock
    return connection, proxy is not None and not secure


def _tunnel(sock: socket.socket, authority: str) -> None:
    """Ask the proxy for a tunnel. Raises `OSError` with its message if it refuses."""
    sock.sendall(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode("ascii"))
    answer = b""
    while b"\r\n\r\n" not in answer and len(answer) < 65_536:
        piece = sock.recv(1)  # bytes after the head belong to the tunnel
        if not piece:
            break
        answer += piece
    status = answer.split(b"\r\n", 1)[0].decode("latin-1")
    if status.split(" ")[1:2] == ["200"]:
        return
    sock.settimeout(2.0)
    try:
        words = sock.recv(2_000).decode("utf-8", "replace")
    except OSError:
        words = ""
    raise OSError(f"the proxy said {status or 'nothing'}{': ' + ' '.join(words.split()) if words.strip() else ''}")


def _body(response: Response, deadline: float) -> tuple[bytes, bool]:
    """Return the body up to the limit, decompressed, and True if that is all of it."""
    unpack = None
    if response.headers.get("Content-Encoding", "").lower() in ("gzip", "x-gzip"):
        unpack = zlib.decompressobj(zlib.MAX_WBITS | 16)
    body = b""
    while True:
        if time.monotonic() > deadline:
            raise TimeoutError("it took too long")
        piece = response.read1(65_536)
        if not piece:
            return body, True
        body += unpack.decompress(piece, BODY_MAX + 1 - len(body)) if unpack is not None else piece
        if len(body) > BODY_MAX:
            return body[:BODY_MAX], False

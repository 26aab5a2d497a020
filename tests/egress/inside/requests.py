"""Attempts to get around the rules of methods and paths."""

from __future__ import annotations

import base64

from tests.egress.inside.kit import (
    GIT,
    attempt,
    inside,
    rejected,
    request,
    status,
)

# --- rules of methods and paths ---


for name, path in {
    "a path that is not allowed": "/secret",
    "dot segments": "/free/../secret",
    "encoded dot segments": "/free/%2e%2e/secret",
    "half-encoded dot segments": "/free/.%2e/secret",
    "dot segments encoded twice": "/free/%252e%252e/secret",
    "an encoded slash": "/free/..%2fsecret",
    "a backslash": "/free/..\\secret",
    "an encoded backslash": "/free/..%5csecret",
    "two slashes": "/free//secret",
    "dot segments with a parameter": "/free/..;/secret",
    "an encoded zero byte": "/free/%00/../secret",
    "an encoded line end": "/free/%0d%0a",
    "a broken encoding": "/free/%zz",
    "another case": "/FREE/x",
}.items():

    @attempt(f"paths: {name}")
    def _path(path: str = path) -> object:
        return rejected(inside(request(path, host="rules.test", key=False), "rules.test"))


@attempt("paths: what is allowed")
def _allowed_path() -> object:
    said = [
        inside(request(path, host="rules.test", key=False), "rules.test") for path in ("/free/x", "/fr%65e/y?a=/../b")
    ]
    return [status(one) for one in said] != [200, 200]


@attempt("methods: another one")
def _method() -> object:
    return rejected(inside(request("/free/x", method="DELETE", host="rules.test", key=False), "rules.test"))


@attempt("methods: another one by a header")
def _override() -> object:
    said = inside(request("/free/x", "X-HTTP-Method-Override: DELETE", host="rules.test", key=False), "rules.test")
    return rejected(said)


@attempt("methods: in small letters")
def _small() -> object:
    return rejected(inside(request("/free/x", method="get", host="rules.test", key=False), "rules.test"))


@attempt("the secret outside its paths")
def _use_path() -> object:
    basic = base64.b64encode(f"x:{GIT}".encode()).decode()
    good = inside(request("/own/x", f"Authorization: Basic {basic}", key=False))
    return status(good) != 200 or rejected(inside(request("/x", f"Authorization: Basic {basic}", key=False)))

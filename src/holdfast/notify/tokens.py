"""Answers that only somebody who was shown the question can send.

A button carries its whole answer as one line, with a code over all of it that only the home's key can make.
So whoever merely guesses where answers are collected cannot approve; whoever can read the notice can. Each
code is for one session, item, digest, verdict, expiry and target, and says nothing about another.

    holdfast-reply/1 approve ses_… itm_… <digest> <expires_us or -> <code> [a note]
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re

import msgspec

from holdfast.facts.people import Verdict

KEY_BYTES = 32
"""The least length of a key."""

TEXT_MAX = 4096
"""No reply is longer, in bytes of UTF-8."""

NOTE_MAX = 1000
"""Characters of a note; the rest is dropped."""

_CODE_BYTES = 16
"""128 bits: nobody guesses that over a network. A phone's push service takes few bytes in all."""

_WORD = r"[\x21-\x7e]{1,128}"

_FORM = re.compile(
    rf"holdfast-reply/1 (approve|deny) ({_WORD}) ({_WORD}) ({_WORD}) (-|[0-9]{{1,17}}) ([A-Za-z0-9_-]{{22}})"
    r"(?:\s+(.*))?",
    re.DOTALL,
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What a reply says. The note is whatever the person adds; it is not under the code."""

    session_id: str
    item_id: str
    verdict: Verdict
    digest: str
    expires_us: int | None = None
    note: str = ""


def answer_text(key: bytes, target: str, answer: Answer) -> str:
    """The line that a button of `target` sends. `key` is secret and at least `KEY_BYTES` long."""
    expires = "-" if answer.expires_us is None else str(answer.expires_us)
    words = [answer.verdict, answer.session_id, answer.item_id, answer.digest, expires]
    line = " ".join(["holdfast-reply/1", *words, _code(key, target, answer)])
    if _FORM.fullmatch(line) is None:
        raise ValueError("an id or a digest of a reply is empty, too long or has a space in it")
    return f"{line} {answer.note}" if answer.note else line


def read_answer(key: bytes, target: str, text: str, sent_us: int) -> Answer | None:
    """The answer in `text` that reached the carrier at `sent_us`; None if it is forged, damaged or late."""
    if len(text) > TEXT_MAX:
        return None
    found = _FORM.fullmatch(text.strip())
    if found is None:
        return None
    answer = Answer(
        session_id=found[2],
        item_id=found[3],
        verdict="approve" if found[1] == "approve" else "deny",
        digest=found[4],
        expires_us=None if found[5] == "-" else int(found[5]),
        note=(found[7] or "")[:NOTE_MAX],
    )
    if not hmac.compare_digest(_code(key, target, answer), found[6]):
        return None
    if answer.expires_us is not None and sent_us > answer.expires_us:
        return None
    return answer


def _code(key: bytes, target: str, answer: Answer) -> str:
    if len(key) < KEY_BYTES:
        raise ValueError(f"a reply key has at least {KEY_BYTES} bytes")
    fields = [answer.session_id, answer.item_id, answer.verdict, answer.digest, answer.expires_us]
    # JSON keeps the fields apart: no two lists of fields have the same bytes.
    covered = msgspec.json.encode(["holdfast-reply/1", target, *fields])
    code = hmac.new(key, covered, hashlib.sha256).digest()[:_CODE_BYTES]
    return base64.urlsafe_b64encode(code).decode().rstrip("=")

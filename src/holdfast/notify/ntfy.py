"""Phone target through an ntfy server: notices with buttons, and a topic that collects the replies.

A button makes the phone publish a line to the reply topic, which Holdfast polls, so no port is open here. The line is
one reply with a code over all of it that only the home's key can make. A sender who only guesses the topic cannot
approve; one who can read the notice can. Each code is for one session, item, digest, verdict, expiry, and target:

    holdfast-reply/1 approve ses_… itm_… <digest> <expires_us or -> <code> [a note]

The notice has an approve button only if the phone receives the full text.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from typing import Any
from urllib.parse import urlencode

import msgspec

from holdfast.clock import Clock
from holdfast.errors import NotifyError, UsageError
from holdfast.facts import bounded_json
from holdfast.facts.people import Verdict
from holdfast.notify.base import KEY_BYTES, Notice, NoticeKind, Replies, Reply
from holdfast.notify.http import Patience, Request, ask, checked_url, persist, settle
from holdfast.notify.notices import Shown, message, one_line

POLL_EVERY_S = 30.0
"""Interval between polls for replies, in seconds. ntfy.sh allows one request every 5 s from an address."""

MESSAGE_BYTES = 4096
"""Longest message, in bytes; a longer one would become an attachment."""

PUSH_BYTES = 4000
"""Bytes that ntfy passes to the push services of Google and Apple; the rest is cut silently."""

_PUSH_FRAME_BYTES = 600
"""Part of `PUSH_BYTES` reserved for the fields that the server adds, each twice."""

_POLL_BYTES = 256 * 1024

_PRIORITY: dict[NoticeKind, int] = {
    "approval": 4,
    "reminder": 4,
    "escalation": 5,
    "finished": 3,
    "failed": 4,
    "test": 3,
}

_TOPIC = re.compile(r"[-_A-Za-z0-9]{1,64}")


class _Line(msgspec.Struct, frozen=True):
    """One message in the server's JSON."""

    id: str
    time: int
    event: str
    message: str = ""


class Ntfy:
    """The phone of one user: a topic for notices, and a reply topic. Both topics are secrets.

    `who` is the user, as events name actors. `token` is an access token of the server. Without a reply topic there are
    no buttons. `key` makes and verifies their codes. Raises `UsageError` for invalid settings.
    """

    def __init__(
        self,
        name: str,
        url: str,
        topic: str,
        clock: Clock,
        *,
        reply_topic: str = "",
        key: bytes = b"",
        token: str = "",
        who: str = "",
        patience: Patience | None = None,
    ) -> None:
        base = checked_url(name, url)
        if base.path not in ("", "/") or base.query:
            raise UsageError(f'the url of [notify.{name}] must be the server only; example: url = "https://ntfy.sh"')
        for option, value in [("topic", topic), *([("reply_topic", reply_topic)] if reply_topic else [])]:
            if _TOPIC.fullmatch(value) is None:
                raise UsageError(f"the {option} of [notify.{name}] must be 1 to 64 of A-Z, a-z, 0-9, - and _")
        if re.fullmatch(r"[\x21-\x7e]*", token) is None:
            raise UsageError(f"the token of [notify.{name}] has an invalid character; copy it again")
        if topic == reply_topic:
            raise UsageError(f"[notify.{name}] uses one topic in both directions; choose another reply_topic")
        self.name = name
        self._url = str(base.copy_with(path="/", query=None, fragment=None)).rstrip("/")
        self._topic = topic
        self._reply_topic = reply_topic
        self._key = key
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._who = who or f"ntfy:{name}"
        self._clock = clock
        self._patience = patience or Patience()

    def __repr__(self) -> str:
        return f"Ntfy({self.name!r})"

    async def send(self, notice: Notice) -> None:
        """Publish a notice. Raises `NotifyError`. After a lost response, the retry can show the notice twice."""
        content = msgspec.json.encode(self._publication(notice))
        headers = {"content-type": "application/json", **self._headers}

        async def attempt() -> None:
            request = Request("POST", f"{self._url}/", headers, content)
            settle(self.name, await ask(self.name, request, self._patience, self._clock))

        await persist(self._patience, attempt)

    async def replies(self, since: str) -> Replies:
        """See `ReplyChannel.replies`. The server keeps replies for some hours (12 by default)."""
        if not self._reply_topic:
            return Replies((), since)
        query = urlencode({"poll": "1", "since": since or "all"})
        request = Request("GET", f"{self._url}/{self._reply_topic}/json?{query}", self._headers, keep_bytes=_POLL_BYTES)

        async def attempt() -> bytes:
            answer = await ask(self.name, request, self._patience, self._clock)
            settle(self.name, answer)
            # The last line of a cut response is left for the next poll.
            return answer.body.rpartition(b"\n")[0] if answer.cut else answer.body

        return self._read(await persist(self._patience, attempt), since)

    # --- send ---------------------------------------------------------------------------------------

    def _publication(self, notice: Notice) -> dict[str, Any]:
        limit = MESSAGE_BYTES
        published, shown = self._publish(notice, limit)
        for _ in range(8):
            over = _push_bytes(published) - PUSH_BYTES
            if over <= 0 or limit <= 200:
                break
            # Each byte of the message counts twice, and escapes add more, so this may take some rounds.
            limit = max(200, min(limit, len(shown.text.encode())) - over // 2 - 1)
            published, shown = self._publish(notice, limit)
        return published

    def _publish(self, notice: Notice, limit: int) -> tuple[dict[str, Any], Shown]:
        shown = message(notice, limit)
        published: dict[str, Any] = {
            "topic": self._topic,
            "title": one_line(notice.title, 200),
            "message": shown.text,
            "priority": _PRIORITY[notice.kind],
            "tags": [notice.kind],
        }
        if self._reply_topic and notice.item_id and notice.action_digest:
            verdicts: tuple[Verdict, ...] = ("approve", "deny") if shown.whole else ("deny",)
            published["actions"] = [self._button(notice, verdict) for verdict in verdicts]
        return published, shown

    def _button(self, notice: Notice, verdict: Verdict) -> dict[str, Any]:
        answer = Answer(
            session_id=notice.session_id,
            item_id=notice.item_id,
            verdict=verdict,
            digest=notice.action_digest,
            expires_us=notice.expires_us,
        )
        return {
            "action": "http",
            "label": "Approve" if verdict == "approve" else "Deny",
            "url": f"{self._url}/{self._reply_topic}",
            "method": "POST",
            "body": answer_text(self._key, self.name, answer),
            "clear": True,
        }

    # --- receive ------------------------------------------------------------------------------------

    def _read(self, body: bytes, since: str) -> Replies:
        cursor, refused = since, 0
        found: dict[tuple[str, str, Verdict, str], Reply] = {}
        for line in body.splitlines():
            told = _line(line)
            if told is None:
                raise NotifyError(
                    f"the notification target {self.name!r} does not respond like an ntfy server; check its url",
                    retryable=False,
                )
            if told.event != "message":
                continue
            cursor = told.id
            answer = read_answer(self._key, self.name, told.message, told.time * 1_000_000)
            key = (answer.session_id, answer.item_id, answer.verdict, answer.digest) if answer else None
            if answer is None or key is None or key in found:
                refused += 1
                continue
            found[key] = Reply(
                session_id=answer.session_id,
                item_id=answer.item_id,
                verdict=answer.verdict,
                digest=answer.digest,
                who=self._who,
                id=told.id,
                cursor=told.id,
                note=answer.note,
            )
        return Replies(tuple(found.values()), cursor, refused)


def _line(line: bytes) -> _Line | None:
    try:
        return bounded_json.decode_as(line, _Line)
    except (msgspec.DecodeError, UnicodeError):
        return None


def _push_bytes(published: dict[str, Any]) -> int:
    """Estimate the size of ntfy's push message, which contains the fields twice, with the buttons as text."""
    actions = msgspec.json.encode([{**action, "id": "0" * 10} for action in published.get("actions", [])]).decode()
    fields = msgspec.json.encode([published["title"], published["message"], actions if len(actions) > 2 else ""])
    # The server's JSON encodes these characters, frequent in commands, as six bytes each.
    longer = 5 * sum(fields.count(character) for character in (b"<", b">", b"&"))
    return 2 * (len(fields) + longer) + 100 + len(published["title"].encode()) + _PUSH_FRAME_BYTES


TEXT_MAX = 4096
"""Longest reply, in bytes of UTF-8."""

NOTE_MAX = 1000
"""Longest note, in characters; the rest is dropped."""

_CODE_BYTES = 16
"""Length of a code: 128 bits cannot be guessed over a network, and push services accept few bytes."""

_WORD = r"[\x21-\x7e]{1,128}"

_FORM = re.compile(
    rf"holdfast-reply/1 (approve|deny) ({_WORD}) ({_WORD}) ({_WORD}) (-|[0-9]{{1,17}}) ([A-Za-z0-9_-]{{22}})"
    r"(?:\s+(.*))?",
    re.DOTALL,
)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """Content of a reply. The user may add a note, which is not covered by the code."""

    session_id: str
    item_id: str
    verdict: Verdict
    digest: str
    expires_us: int | None = None
    note: str = ""


def answer_text(key: bytes, target: str, answer: Answer) -> str:
    """Format the line that a button of `target` sends. `key` is secret and at least `KEY_BYTES` long."""
    expires = "-" if answer.expires_us is None else str(answer.expires_us)
    words = [answer.verdict, answer.session_id, answer.item_id, answer.digest, expires]
    line = " ".join(["holdfast-reply/1", *words, _code(key, target, answer)])
    if _FORM.fullmatch(line) is None:
        raise ValueError("an id or a digest of a reply is empty, too long or has a space in it")
    return f"{line} {answer.note}" if answer.note else line


def read_answer(key: bytes, target: str, text: str, sent_us: int) -> Answer | None:
    """Parse a reply that reached the carrier at `sent_us`; None if it is forged, damaged, or late."""
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
    # JSON separates the fields: no two lists of fields have the same bytes.
    covered = msgspec.json.encode(["holdfast-reply/1", target, *fields])
    code = hmac.new(key, covered, hashlib.sha256).digest()[:_CODE_BYTES]
    return base64.urlsafe_b64encode(code).decode().rstrip("=")

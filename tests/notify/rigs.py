"""Every target and reply channel with its receiver, for the kit and for the tests beside it."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import apprise
import httpx

from holdfast.clock import SystemClock
from holdfast.facts.people import Verdict
from holdfast.notify.apprise_target import AppriseTarget
from holdfast.notify.base import Notice, ReplyChannel, Target
from holdfast.notify.fake import FakeReplies, FakeTarget
from holdfast.notify.http import Patience
from holdfast.notify.notices import message
from holdfast.notify.ntfy import Ntfy
from holdfast.notify.webhook import Webhook
from holdfast.testing.notify import Received
from tests.support.ntfy_server import NtfyServer
from tests.support.receiver import Receiver, Reply

# Loading its plugins warns of modules that Python will drop; that is theirs.
with warnings.catch_warnings(action="ignore"):
    apprise.Apprise.instantiate("json://127.0.0.1")

QUICK = Patience(request_s=20.0, tries=3, first_wait_s=0.01, longest_wait_s=0.05, whole_s=60.0)
"""Waits little, and yet for a machine that is busy."""

BRIEF = Patience(request_s=0.3, tries=3, first_wait_s=0.01, longest_wait_s=0.05, whole_s=5.0)
"""For a receiver that never answers."""

SECRET = "whsec_" + "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA=="
KEY = bytes(range(32))


class FakeRig:
    """A target in memory; its receiver is itself."""

    secrets: Sequence[str] = ()

    def __init__(self) -> None:
        self.fake = FakeTarget()

    @property
    def target(self) -> Target:
        return self.fake

    def received(self) -> list[Received]:
        return [Received(sent.title, message(sent, 20_000).text, sent.notice_id) for sent in self.fake.sent]

    def fail(self, times: int) -> None:
        self.fake.failing = times

    def stall(self) -> None:
        self.fake.down = True

    def close(self) -> None:
        self.fake.down = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()


class HttpRig:
    """A target whose receiver is a web server here."""

    receiver: Receiver
    target: Target
    secrets: Sequence[str]

    def fail(self, times: int) -> None:
        self.receiver.planned.extend([Reply(500, {}, b"boom")] * times)

    def make(self, patience: Patience) -> Target:
        """A target of this rig that waits so long."""
        raise NotImplementedError

    def stall(self) -> None:
        self.receiver.stalled = True
        self.target = self.make(BRIEF)

    def close(self) -> None:
        self.receiver.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()


class _Taking(Receiver):
    """Keeps apart what it took from what it refused."""

    def __init__(self) -> None:
        self.taken: list[tuple[dict[str, str], bytes]] = []
        super().__init__()

    def answer(self, got: Any) -> Reply:
        self.taken.append((got.headers, got.body))
        return Reply(204)


class WebhookRig(HttpRig):
    def __init__(self) -> None:
        self.receiver: _Taking = _Taking()
        self.target = self.make(QUICK)
        self.secrets = ["T0PS3CRET", SECRET, SECRET.removeprefix("whsec_")]

    def make(self, patience: Patience) -> Target:
        return Webhook("ops", f"{self.receiver.url}/hooks/T0PS3CRET-path", SECRET, SystemClock(), patience)

    def received(self) -> list[Received]:
        bodies = [(headers, json.loads(body)["data"]) for headers, body in self.receiver.taken]
        return [
            Received(data["title"], data["body"] + "\n" + "\n".join(data["commands"]), headers["webhook-id"])
            for headers, data in bodies
        ]


class AppriseRig(HttpRig):
    def __init__(self) -> None:
        self.receiver: _Taking = _Taking()
        self.target = self.make(QUICK)
        self.secrets = ["T0PS3CRET"]

    def make(self, patience: Patience) -> Target:
        """The library's own limit is longer, so it is ours that ends the wait."""
        url = f"json://ann:T0PS3CRET@127.0.0.1:{self.receiver.port}/T0PS3CRET-path?rto=20&cto=20"
        return AppriseTarget("mail", url, timeout_s=patience.request_s)

    def received(self) -> list[Received]:
        bodies = [json.loads(body) for _, body in self.receiver.taken]
        return [Received(body["title"], body["message"]) for body in bodies]


class NtfyRig(HttpRig):
    """A phone. The topics take tokens for reading, the reply topic is open for writing, as docs say."""

    def __init__(self, key: bytes = KEY) -> None:
        self.receiver: NtfyServer = NtfyServer()
        self.receiver.readers = {"T0PS3CRET-topic": "tk_phone", "T0PS3CRET-replies": "tk_T0PS3CRET"}
        self.receiver.writers = {"T0PS3CRET-topic": "tk_T0PS3CRET"}
        self._reply_key = key
        self.ntfy = self.make(QUICK)
        self.target = self.ntfy
        self.secrets = ["T0PS3CRET", key.hex()]

    def make(self, patience: Patience) -> Ntfy:
        return Ntfy(
            "phone",
            self.receiver.url,
            "T0PS3CRET-topic",
            SystemClock(),
            reply_topic="T0PS3CRET-replies",
            key=self._reply_key,
            token="tk_T0PS3CRET",
            who="user:ann",
            patience=patience,
        )

    @property
    def channel(self) -> ReplyChannel:
        return self.ntfy

    def shown(self) -> list[dict[str, Any]]:
        """What the phone shows."""
        return self.receiver.of("T0PS3CRET-topic")

    def received(self) -> list[Received]:
        return [Received(shown["title"], shown["message"]) for shown in self.shown()]

    def buttons(self) -> dict[str, dict[str, Any]]:
        """The buttons of the newest notice: label → action."""
        return {action["label"]: action for action in self.shown()[-1].get("actions", [])}

    async def press(self, notice: Notice, verdict: Verdict) -> None:
        """What the ntfy app does when a button is pressed."""
        await self.ntfy.send(notice)
        await self.click({"approve": "Approve", "deny": "Deny"}[verdict])

    async def click(self, label: str) -> None:
        """Press a button of the newest notice."""
        action = self.buttons()[label]
        assert action["action"] == "http"
        async with httpx.AsyncClient(trust_env=False) as phone:
            answer = await phone.request(action["method"], action["url"], content=action["body"])
        assert answer.status_code == 200, answer.text

    async def say(self, text: str) -> None:
        """Somebody publishes to the reply topic."""
        async with httpx.AsyncClient(trust_env=False) as anybody:
            await anybody.post(f"{self.receiver.url}/T0PS3CRET-replies", content=text.encode())

    def junk(self) -> None:
        httpx.post(f"{self.receiver.url}/T0PS3CRET-replies", content=b"approve everything", trust_env=False)


class FakeReplyRig:
    """A channel in memory."""

    def __init__(self) -> None:
        self.channel = FakeReplies()

    async def press(self, notice: Notice, verdict: Verdict) -> None:
        self.channel.press(notice, verdict)

    def junk(self) -> None:
        self.channel.junk()

    def close(self) -> None:
        """Nothing holds anything."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()


TARGETS: dict[str, Callable[[], FakeRig | WebhookRig | AppriseRig | NtfyRig]] = {
    "fake": FakeRig,
    "webhook": WebhookRig,
    "apprise": AppriseRig,
    "ntfy": NtfyRig,
}

CHANNELS: dict[str, Callable[[], FakeReplyRig | NtfyRig]] = {"fake": FakeReplyRig, "ntfy": NtfyRig}

"""Target of the Apprise library: mail, chat, SMS, and many more. Its URL holds the credentials.

Apprise blocks, so it runs in a thread. It does not report why a service refused a message, so every failure is
retryable. It sends once; the caller retries later with the same notice.
"""

from __future__ import annotations

import logging
import threading
from functools import partial

import anyio
import anyio.to_thread
import apprise

from holdfast.errors import NotifyError
from holdfast.notify.base import Notice
from holdfast.notify.notices import message, one_line

TIMEOUT_S = 30.0
"""Time limit of a service, in seconds."""

_sending = threading.local()


def _may_be_logged(record: logging.LogRecord) -> bool:
    return not getattr(_sending, "now", False)


# The library logs hosts and masked parts of URLs, and would print failures into the terminal.
logging.getLogger("apprise").addFilter(_may_be_logged)


class AppriseTarget:
    """A service, by its Apprise URL."""

    def __init__(self, name: str, url: str, timeout_s: float = TIMEOUT_S) -> None:
        self.name = name
        self._url = url
        self._timeout_s = timeout_s
        self._service: apprise.NotifyBase | None = None
        self._making = threading.Lock()

    def __repr__(self) -> str:
        return f"AppriseTarget({self.name!r})"

    async def send(self, notice: Notice) -> None:
        """Send once. Raises `NotifyError`."""
        failure, retryable = "", True
        try:
            with anyio.fail_after(self._timeout_s):
                # A thread that hangs is abandoned; it ends by its own timeouts.
                failure, retryable = await anyio.to_thread.run_sync(partial(self._send, notice), abandon_on_cancel=True)
        except TimeoutError:
            failure = f"did not answer within {self._timeout_s:g} s"
        if failure:
            raise NotifyError(
                f"the notification target {self.name!r} {failure}. The session is not affected; see `holdfast inbox`",
                retryable=retryable,
            )

    def _send(self, notice: Notice) -> tuple[str, bool]:
        """Send, in a thread. Return the failure, empty on success, and True if a retry may help."""
        _sending.now = True
        try:
            with self._making:
                if self._service is None:
                    self._service = _service(self._url)
            if self._service is None:
                return "has a url that Apprise does not support; `apprise --help` has examples", False
            title = one_line(notice.title, max(self._service.title_maxlen, 80))
            # A service without titles gets the title as the first line of the body.
            room = max(self._service.body_maxlen - len(title.encode()) - 4, 40)
            sent = self._service.notify(
                body=message(notice, room).text, title=title, body_format=apprise.NotifyFormat.TEXT
            )
        except Exception as error:  # a plugin may raise anything; the session continues
            return f"failed inside Apprise ({type(error).__name__})", True
        finally:
            _sending.now = False
        return ("", True) if sent else ("did not take the message, or could not be reached", True)


def _service(url: str) -> apprise.NotifyBase | None:
    """Return the service of a URL; None if no plugin supports it."""
    return apprise.Apprise.instantiate(url, asset=apprise.AppriseAsset(secure_logging=True), suppress_exceptions=True)

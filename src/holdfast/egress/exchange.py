"""Requests that the proxy reads: check each one, forward it with its secrets, and mask them in the response."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Sequence

import anyio
import h11

from holdfast.egress.compressed import Body, Hidden
from holdfast.egress.git_push import PushGate, push_gate
from holdfast.egress.http import (
    HEAD_MAX,
    IDLE_S,
    FormWatch,
    Head,
    Inbox,
    Refusal,
    answer_to,
    check_bounded,
    form_watch,
    read_head,
    stays_open,
)
from holdfast.egress.placeholders import BodyWatch, Injection, put_in
from holdfast.egress.rules import (
    Malformed,
    Place,
    check_target,
    is_bounded,
    path_of,
    read_absolute,
    read_authority,
    request_fits,
    shown,
)
from holdfast.egress.scrub import Forms
from holdfast.egress.state import State
from holdfast.egress.streams import Ended, Silent, Stream
from holdfast.facts.session import Destination, SecretUse

ANSWER_HEAD_MAX = 128 << 10
"""Longest head of a response, in bytes."""

QUIET_S = 0.2
"""Pause in a response after which a few bytes that may begin a secret are passed on, in seconds."""

_HOP = frozenset((b"connection", b"keep-alive", b"te", b"trailer", b"upgrade", b"proxy-connection", b"http2-settings"))
_OURS = frozenset((b"expect", b"proxy-authorization", b"proxy-authenticate"))
_ANSWER_DROPS = _HOP | {b"transfer-encoding", b"alt-svc", b"proxy-authenticate", b"proxy-status"}
_PARTS = frozenset((b"range", b"if-range"))


class Conversation:
    """The requests of one client connection, one after another.

    `place` is the destination of its tunnel; None for plain requests, each of which names its own destination.
    """

    def __init__(self, state: State, inbox: Inbox, place: Place | None, upstream: Stream | None = None) -> None:
        self.state = state
        self.inbox = inbox
        self._tunnel = place
        self.secure = place is not None
        self._upstream = upstream
        self._leads: Place | None = place
        self._trouble: Refusal | None = None

    async def secure_upstream(self) -> None:
        """Start TLS to the upstream during the client's handshake; the first request reports a failure."""
        if self._upstream is None or self._tunnel is None:
            return
        try:
            await self.state.outward.secure(self._upstream, self._tunnel.host)
        except Refusal as refusal:
            self._trouble = refusal
            self._drop()

    async def serve(self, first: Head | None = None) -> None:
        """Serve requests until one side closes the connection or a request is refused."""
        try:
            head = first
            while True:
                if head is None:
                    raw = await self.inbox.head(wait_s=IDLE_S)
                    if not raw:
                        return
                    head = read_head(raw)
                place = self._tunnel or Place("", 0)
                try:
                    place, target = self._destination(head)
                    self.state.admit()
                    if not await _Exchange(self, place, head._replace(target=target)).run():
                        return
                except Refusal as refusal:
                    await self._refuse(place, head, refusal)
                    return
                head = None
        except Refusal as refusal:
            await self._refuse(self._tunnel or Place("", 0), None, refusal)
        finally:
            self._drop()

    def _destination(self, head: Head) -> tuple[Place, bytes]:
        """Return the destination of a request, and the target in the form that its server expects."""
        try:
            if self._tunnel is not None:
                target, place, port = check_target(head.target), self._tunnel, self._tunnel.port
            else:
                place, target = read_absolute(head.target)
                port = 80
            hosts = head.all(b"host")
            named = read_authority(hosts[0], port) if hosts else place
        except Malformed as error:
            raise Refusal(400, str(error)) from None
        if named != place:
            raise Refusal(421, "the Host header differs from the host of the connection")
        return place, target

    async def _refuse(self, place: Place, head: Head | None, refusal: Refusal) -> None:
        self.state.refused(place, head, refusal)
        with contextlib.suppress(Ended):
            await self.inbox.stream.send(answer_to(refusal))
            await self.inbox.stream.linger()

    async def upstream(self, place: Place, destinations: Sequence[Destination]) -> Stream:
        """Return a connection to a destination; reuse the open one. Raises `Refusal`."""
        if self._trouble is not None:
            raise self._trouble
        if self._upstream is not None and self._leads == place and self._upstream.is_quiet():
            return self._upstream
        self._drop()
        stream = await self.state.outward.open(place, destinations)
        if self._tunnel is not None:
            try:
                await self.state.outward.secure(stream, place.host)
            except BaseException:
                stream.close()
                raise
        self._upstream, self._leads = stream, place
        return stream

    def _drop(self) -> None:
        if self._upstream is not None:
            self._upstream.close()
            self._upstream = None


class _Exchange:
    """One request and its response."""

    def __init__(self, conversation: Conversation, place: Place, head: Head) -> None:
        self._conversation = conversation
        self._state = conversation.state
        self._client = conversation.inbox.stream
        self._place = place
        self._head = head
        self._down = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_MAX)
        self._up = h11.Connection(h11.CLIENT, max_incomplete_event_size=ANSWER_HEAD_MAX)
        self._body: Body | None = None
        self._forms: Forms | None = None
        self._secrets = ""
        self._gates: list[PushGate] = []
        self._form: FormWatch | None = None
        self._begun = False
        self._uploaded = False
        self._sent = 0
        self._received = 0

    async def run(self) -> bool:
        """Check the request, forward it, and return its response. True if the connection may carry another request."""
        rules = self._state.rules
        host = self._place.host
        destinations = rules.open(self._place) if self._conversation.secure else rules.plain(self._place)
        if not destinations:
            plain = "" if self._conversation.secure else " without TLS"
            raise Refusal(403, f"the policy does not allow connections to {host}, port {self._place.port}{plain}")
        problem = request_fits(destinations, self._head.method, path_of(self._head.target))
        if problem:
            raise Refusal(403, problem)
        injections = self._state.placeholders.find(self._head, rules.uses(host), secure=self._conversation.secure)
        bounds: list[Destination | SecretUse] = [*destinations, *(one.use for one in injections)]
        if is_bounded(bounds):
            named = [name for bound in bounds for name in bound.headers]
            check_bounded(self._head, [*named, *(one.use.header for one in injections)])
            self._form = form_watch(self._head)
        gates = [push_gate(one.use, self._head) for one in injections]
        self._gates = [gate for gate in gates if gate is not None]
        headers = await self._headers(injections)
        stream = await self._conversation.upstream(self._place, destinations)
        try:
            return await self._carry(stream, headers)
        finally:
            self._state.allowed(self._place, self._head, sent=self._sent, received=self._received, secret=self._secrets)

    async def _headers(self, injections: list[Injection]) -> list[tuple[bytes, bytes]]:
        """Return the headers to send upstream."""
        names = list(dict.fromkeys(one.use.name for one in injections))
        self._secrets = ", ".join(names)
        for name in names:
            if self._state.is_held(name):
                raise Refusal(403, f"the use of the secret {name} needs an approval first", secret=name, held=True)
        values = await self._state.values(self._place.host, names)
        self._forms = self._state.forms(self._place.host)
        drops = _HOP | _OURS | (_PARTS if self._forms is not None else frozenset())
        uncompressed = self._conversation.secure or self._forms is not None
        if uncompressed:
            drops |= {b"accept-encoding"}
        kept = [pair for pair in put_in(self._head, injections, values) if pair[0] not in drops]
        if not self._head.all(b"host"):
            kept.insert(0, (b"host", shown(self._place).encode()))
        if uncompressed:
            kept.append((b"accept-encoding", b"identity"))
        return kept

    async def _carry(self, stream: Stream, headers: list[tuple[bytes, bytes]]) -> bool:
        failures: list[Exception] = []
        self._down.receive_data(self._head.raw)
        self._down.next_event()
        request = h11.Request(method=self._head.method, target=self._head.target, headers=headers)
        async with anyio.create_task_group() as group:

            async def upload() -> None:
                try:
                    await self._upload(stream, request)
                except (Refusal, Ended, h11.ProtocolError) as error:
                    failures.append(error)
                    group.cancel_scope.cancel()

            group.start_soon(upload)
            try:
                await self._download(stream)
            except (Refusal, Ended, h11.ProtocolError) as error:
                failures.append(error)
            group.cancel_scope.cancel()
        if failures:
            stream.close()
            return await self._failed(failures[0])
        if self._up.our_state is not h11.DONE or self._up.their_state is not h11.DONE:
            stream.close()
        return self._uploaded and stays_open(self._head) and self._down.our_state is h11.DONE

    async def _failed(self, failure: Exception) -> bool:
        """Refuse the request. A response that has begun is cut off instead, so that the client sees a missing end."""
        if self._begun:
            if isinstance(failure, Refusal):
                self._state.refused(self._place, self._head, failure)
            return False
        if isinstance(failure, Refusal):
            raise failure
        if isinstance(failure, h11.RemoteProtocolError):
            raise Refusal(502, f"the response of {self._place.host} is not valid HTTP/1.1")
        raise Refusal(502, f"{self._place.host} closed the connection")

    # --- request ---

    async def _upload(self, stream: Stream, request: h11.Request) -> None:
        """Send the request. If its body is checked, the head waits until the first bytes of the body have passed."""
        waiting: list[h11.Event] = [request]
        if not self._gates and self._form is None:
            await self._put(stream, waiting)
            waiting = []
        if self._down.they_are_waiting_for_100_continue:
            await self._client.send(self._down.send(h11.InformationalResponse(status_code=100, headers=[])) or b"")
        watch = BodyWatch(self._state.placeholders)
        inbox = self._conversation.inbox
        while True:
            event = self._down.next_event()
            if event is h11.NEED_DATA:
                data = await inbox.more()
                if not data:
                    raise Ended("the client closed the connection inside its request")
                self._down.receive_data(data)
            elif isinstance(event, h11.Data):
                data = bytes(event.data)
                watch.feed(data)
                if self._form is not None:
                    self._form.feed(data)
                self._state.count(len(data))
                for gate in self._gates:
                    data = gate.feed(data)
                if data:
                    await self._put(stream, [*waiting, h11.Data(data=data)])
                    waiting = []
            else:
                for gate in self._gates:
                    gate.end()
                inbox.put_back(self._down.trailing_data[0])
                await self._put(stream, [*waiting, h11.EndOfMessage()])
                self._uploaded = True
                return

    async def _put(self, stream: Stream, events: list[h11.Event]) -> None:
        """Send bytes upstream. A server that stopped reading may still respond, so that is not a failure."""
        data = b"".join(self._up.send(event) or b"" for event in events)
        self._sent += len(data)
        try:
            await stream.send(data)
        except Ended:
            await anyio.sleep_forever()

    # --- response ---

    async def _download(self, stream: Stream) -> None:
        while True:
            out: list[bytes] = []
            ended = self._take_events(out)
            if out:
                await self._client.send(out[0] if len(out) == 1 else b"".join(out))
            if ended:
                return
            data = await self._more(stream)
            self._received += len(data)
            self._state.count(len(data))
            self._up.receive_data(data)

    async def _more(self, stream: Stream) -> bytes:
        """Read the next bytes. In a pause, pass on held-back bytes that are too few to be a secret."""
        body = self._body
        if body is not None and body.waits:
            try:
                return await stream.recv(wait_s=QUIET_S)
            except Silent:
                if rest := body.idle():
                    await self._client.send(self._down.send(h11.Data(data=rest)) or b"")
        return await stream.recv(wait_s=IDLE_S)

    def _take_events(self, out: list[bytes]) -> bool:
        """Convert upstream events to bytes for the client. True at the end of the response."""
        while True:
            event = self._up.next_event()
            if event is h11.NEED_DATA:
                return False
            if isinstance(event, h11.InformationalResponse):
                if event.status_code == 101:
                    raise Refusal(502, f"{self._place.host} switched to another protocol")
            elif isinstance(event, h11.Response):
                self._state.reads(self._place)
                out.append(self._down.send(self._answer(event)) or b"")
                self._begun = True
            elif isinstance(event, h11.Data):
                if data := self._searched(event.data):
                    out.extend(self._down.send_with_data_passthrough(h11.Data(data=data)) or ())
            elif isinstance(event, h11.EndOfMessage):
                if rest := self._searched(b"", last=True):
                    out.append(self._down.send(h11.Data(data=rest)) or b"")
                out.append(self._down.send(h11.EndOfMessage()) or b"")
                return True
            else:
                raise Ended("the upstream closed the connection")

    def _searched(self, data: bytes, *, last: bool = False) -> bytes:
        """Mask secrets in the next piece of the response, including those used for the first time meanwhile."""
        self._forms = self._state.forms(self._place.host) or self._forms
        if self._body is None or self._forms is None:
            return data
        try:
            return self._body.end() if last else self._body.feed(bytes(data), self._forms)
        except Hidden as error:
            raise Refusal(502, f"the response of {self._place.host} {error}; it was cut off") from None

    def _answer(self, response: h11.Response) -> h11.Response:
        """Return the head of the response without connection headers and with secrets masked."""
        headers = [pair for pair in response.headers if pair[0] not in _ANSWER_DROPS]
        reason = response.reason
        self._forms = self._state.forms(self._place.host) or self._forms
        if self._forms is not None:
            empty = self._head.method == "HEAD" or response.status_code in (204, 304)
            coded = [value for name, value in headers if name == b"content-encoding"]
            if not empty and any(value.strip().lower() not in (b"identity", b"") for value in coded):
                raise Refusal(502, f"{self._place.host} sent an encoded response, which cannot be searched for secrets")
            self._body = Body(self._forms)
            headers = [(name, self._forms.scrub(value)) for name, value in headers]
            reason = self._forms.scrub(reason)
        return h11.Response(status_code=response.status_code, headers=headers, reason=reason)


async def intercept(state: State, inbox: Inbox, place: Place, upstream: Stream) -> None:
    """Terminate the client's TLS with a certificate for the destination, and serve its requests."""
    conversation = Conversation(state, inbox, place, upstream)
    try:
        context: ssl.SSLContext = state.authority.context(place.host)
        async with anyio.create_task_group() as group:
            group.start_soon(conversation.secure_upstream)
            failed = False
            try:
                await inbox.stream.start_tls(context, server=True)
            except Ended:
                failed = True
                group.cancel_scope.cancel()
        if failed:
            refusal = Refusal(400, "the client did not accept TLS in the name of that host")
            state.refused(place, None, refusal)
            return
        await conversation.serve()
    finally:
        upstream.close()

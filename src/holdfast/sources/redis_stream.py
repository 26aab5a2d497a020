"""A Redis stream as a source. Reading removes nothing: no consumer group, the cursor is the id of an entry."""

from __future__ import annotations

from typing import Any

import anyio
import redis.asyncio
import redis.exceptions

from holdfast.errors import SourceError
from holdfast.sources.base import Offered, Polled, Rejected, event
from holdfast.sources.settings import RedisSettings


class RedisSource:
    """The entries of a stream. `password` is empty for none."""

    def __init__(self, settings: RedisSettings, password: str = "") -> None:
        self._settings = settings
        self._password = password

    async def poll(self, cursor: str, limit: int) -> Polled:
        """See `Source.poll`."""
        settings, failure, again = self._settings, "", True
        client = redis.asyncio.Redis.from_url(
            settings.url, password=self._password or None, decode_responses=False, socket_timeout=settings.timeout_s
        )
        try:
            with anyio.fail_after(settings.timeout_s):
                return await self._read(client, cursor, limit)
        except TimeoutError:
            failure = f"did not answer within {settings.timeout_s:g} s"
        except redis.exceptions.ConnectionError as error:
            again = not isinstance(error, redis.exceptions.AuthenticationError)
            failure = "cannot be reached" if again else "refused the password"
        except redis.exceptions.RedisError as error:
            failure, again = f"refused to read: {type(error).__name__}", False
        finally:
            with anyio.CancelScope(shield=True):
                await client.aclose()
        raise SourceError(f"the Redis stream {settings.stream!r} {failure}; nothing was taken", retryable=again)

    async def _read(self, client: Any, cursor: str, limit: int) -> Polled:
        """Read the entries after the cursor, which is the id of the last one and how many were added up to it.

        The number shows that entries were removed before they were read.
        """
        stream = self._settings.stream
        last, _, counted = cursor.partition(" ")
        async with client.pipeline(transaction=True) as both:
            both.xrange(stream, min=f"({last}" if last else "-", count=limit + 1)
            both.xinfo_stream(stream)
            found, info = await both.execute(raise_on_error=False)
        if isinstance(info, redis.exceptions.ResponseError) and "no such key" in str(info):
            info = {"entries-added": 0, "length": 0, "last-generated-id": b"0-0"}
        for answer in (found, info):
            if isinstance(answer, Exception):
                raise answer
        added = info["entries-added"]
        if not cursor and self._settings.start == "now":
            return Polled((), f"{info['last-generated-id'].decode()} {added}")
        taken = [_entry(entry_id.decode(), fields) for entry_id, fields in found[:limit]]
        events = tuple(each for each in taken if isinstance(each, Offered))
        rejected = tuple(each for each in taken if isinstance(each, Rejected))
        last = found[len(taken) - 1][0].decode() if taken else last or "0-0"
        more = len(found) > limit
        through = (int(counted) if counted else added - info["length"]) + len(taken)
        lost = 0 if more else max(0, added - through)
        note = f"{lost} entries were removed from the stream before they were read" if lost else ""
        return Polled(events, f"{last} {through if more else added}", more, rejected, note)


def _entry(entry_id: str, fields: dict[bytes, bytes] | None) -> Offered | Rejected:
    try:
        data = {name.decode(): value.decode() for name, value in (fields or {}).items()}
    except UnicodeDecodeError:
        return Rejected(entry_id, "a field of the entry is not UTF-8", str(fields))
    return event(entry_id, data, int(entry_id.partition("-")[0]) * 1_000)

"""Open a source by its kind. Providers are loaded when they are used, since some need an extra."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.clock import Clock
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.sources.base import Source
from holdfast.sources.command import CommandSource, Run
from holdfast.sources.directory import DirectorySource
from holdfast.sources.settings import (
    CommandSettings,
    DirectorySettings,
    HttpSettings,
    RedisSettings,
    Settings,
    SqlSettings,
)
from holdfast.sources.sql import SqliteSource


def open_source(settings: Settings, *, clock: Clock, run: Run, secret: Callable[[str], str]) -> Source:
    """Return the source with these settings. `run` runs commands, `secret` reads a secret by name.

    Raises `CannotRunSafely` if it needs an extra that is not installed.
    """
    match settings:
        case DirectorySettings():
            return DirectorySource(settings, clock)
        case CommandSettings():
            return CommandSource(settings, run)
        case SqlSettings() if not settings.is_postgres:
            return SqliteSource(settings)
        case HttpSettings() | SqlSettings() | RedisSettings():
            return _with_extra(settings, secret)
        case _:
            raise UsageError("a webhook is not polled: its events are sent to the server")


def _with_extra(settings: HttpSettings | SqlSettings | RedisSettings, secret: Callable[[str], str]) -> Source:
    extra = "duty"
    try:
        if isinstance(settings, HttpSettings):
            from holdfast.sources.http import HttpSource

            return HttpSource(settings, secret)
        password = secret(settings.secret) if settings.secret else ""
        if isinstance(settings, SqlSettings):
            extra = "postgres"
            from holdfast.sources.postgres import PostgresSource

            return PostgresSource(settings, password)
        extra = "redis"
        from holdfast.sources.redis_stream import RedisSource

        return RedisSource(settings, password)
    except ImportError as error:
        raise CannotRunSafely(
            f"this source needs the extra {extra!r}: pip install 'holdfast[{extra}]'; nothing was read"
        ) from error

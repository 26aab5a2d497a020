"""Named recipes: packages, commands and services that belong together."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.environment import browser
from holdfast.environment.base import SHARED
from holdfast.errors import UsageError
from holdfast.facts.session import Service


class Recipe(NamedTuple):
    """What a recipe adds to an environment. `env` is set in every command of the work."""

    packages: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    env: dict[str, str] = {}


_DATA = f"{SHARED}/postgresql"

RECIPES: dict[str, Recipe] = {
    "browser": Recipe(browser.PACKAGES, browser.COMMANDS, browser.SERVICES, browser.ENV),
    "postgresql": Recipe(
        packages=("postgresql",),
        commands=(
            f"initdb -D {_DATA} -U agent -A trust -E UTF8 --no-sync && "
            f'printf "%s\\n" "listen_addresses = \'127.0.0.1\'" "unix_socket_directories = \'/tmp\'" '
            f"'fsync = off' 'shared_buffers = 16MB' >> {_DATA}/postgresql.conf && "
            f"pg_ctl -D {_DATA} -w -l /tmp/postgresql.log start && createdb -h /tmp -U agent agent && "
            f"pg_ctl -D {_DATA} -w stop",
        ),
        services=(Service("postgresql", f"exec postgres -D {_DATA}", "pg_isready -q -h 127.0.0.1"),),
        env={"PGHOST": "127.0.0.1", "PGUSER": "agent", "PGDATABASE": "agent"},
    ),
}
"""All recipes by name. A database's files are a layer: every new hands begin with them as they were made."""


def recipe(name: str) -> Recipe:
    """The recipe of that name. Raises `UsageError`."""
    if name not in RECIPES:
        known = ", ".join(sorted(RECIPES))
        raise UsageError(f"there is no environment recipe {name!r}; `recipes` under [environment] takes {known}")
    return RECIPES[name]

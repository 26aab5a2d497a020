"""Regular expressions that are compiled at their first use.

Compiling is what a module full of patterns costs at import, and a short command uses few of them.
"""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_VERBS = ("search", "match", "fullmatch", "sub", "split", "findall", "finditer")


class _Lazy:
    """Stands for a compiled pattern; compiles itself when one of its methods is looked up first."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._source = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._source)
        self.__dict__.update({verb: getattr(compiled, verb) for verb in _VERBS})
        return getattr(compiled, name)


def lazy(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """Return a pattern that is compiled at its first use, and as fast as any other afterwards.

    It has the methods of a compiled pattern, but is not one: `re.search(lazy(...), text)` does not work.
    """
    return cast("re.Pattern[AnyStr]", _Lazy(pattern, flags))

"""Words that leave open when something is done. They count only where nothing beside them makes them exact."""

from __future__ import annotations

import re

_MEASURED = re.compile(
    r"\b(?:fast(?![- ](?:forward|path|fail|lane|mode|refresh))|quick(?:ly)?(?![- ]?(?:start|fix|look|sort|search))"
    r"|slow(?:ly)?|performant|efficient(?:ly)?|scalabl[ey]|scales? well|low[- ]latency|high[- ]performance|lightweight"
    r"|optimi[sz]ed|(?:much |significantly |noticeably )?improved|good performance|responsive(?! (?:layout|design))"
    r"|minimal (?:overhead|latency|memory))\b",
    re.IGNORECASE,
)
"""How much of something: exact with a number, or held against something else."""

_OPEN = re.compile(
    r"\b(?:proper(?:ly)?(?! (?:subset|superset|prefix|noun|fraction|divisor|name))|appropriate(?:ly)?|adequate(?:ly)?"
    r"|reasonabl[ey]|sensibl[ey]|suitabl[ey]|user[- ]friendl(?:y|iness)|intuitive(?:ly)?|easily|elegant(?:ly)?"
    r"|easy to (?:use|read|understand|maintain|extend|follow|navigate)|nice(?:ly|r)?(?! (?:value|level))"
    r"|beautiful(?:ly)?|seamless(?:ly)?|smoothly|robust(?:ly|ness)?|reliabl[ey]|gracefully"
    r"|high[- ]quality|good quality|best practices?"
    r"|(?:works?|behaves?|functions?|runs?|looks?|feels?|performs?) (?:well|good|great|right|fine|nice|correctly)"
    r"|works? as (?:expected|intended)|as expected|well[- ](?:structured|documented|tested|designed|written)"
    r"|clean code|maintainable|readable code|production[- ]ready|state[- ]of[- ]the[- ]art|if possible|where possible"
    r"|ideally|professional(?:ly)?[- ]looking|polished)\b",
    re.IGNORECASE,
)
"""What each reader answers otherwise."""

_ENDLESS = re.compile(
    r"\betc\b|\band so on\b|\band so forth\b|\band (?:many )?more\.?$|\bas (?:needed|necessary|required|appropriate)\b"
    r"|\bif (?:needed|necessary)\b|\bTBD\b|\bto be (?:defined|decided|determined)\b|\.\.\.$|…$",
    re.IGNORECASE,
)
"""A list without an end, or what nobody has decided."""

_QUOTED = re.compile(r"`[^`]*`|\"[^\"]*\"|“[^”]*”|(?<!\w)'[^']*'(?!\w)")
_NUMBER = re.compile(r"\d|\b(?:than|twice|half|zero|constant|linear|logarithmic|O\()", re.IGNORECASE)


READ_MAX = 10_000
"""So many characters of a criterion are looked at; whoever writes more says more than a word can spoil."""


def vague(text: str) -> str:
    """The first word of a sentence that leaves open when it holds, empty when none does."""
    for sentence in re.split(r"(?<=[.!?;])\s+|\n", text[:READ_MAX]):
        bare = _QUOTED.sub(" ", sentence)
        endless = _ENDLESS.search(bare)
        if endless:
            return endless[0]
        found = _OPEN.search(bare) or _MEASURED.search(bare)
        if found and not _exact(sentence):
            return found[0]
    return ""


def _exact(sentence: str) -> bool:
    """Whether a number, a comparison or a command in code stands in it."""
    return _NUMBER.search(sentence) is not None or re.search(r"`[^`]*\s[^`]*`", sentence) is not None

"""What an agent says when it is about to stop before the work is done: a small table of phrases. Pure.

The reports on context anxiety describe work that is wrapped up early at a believed limit, steps skipped and
answers cut short; taxonomies of agent failures name premature ends and missing verification. Nobody has
published a list of words, so this one is ours, and no phrase counts alone (`holdfast.session.context.signs`).
"""

from __future__ import annotations

import re
from typing import Any

LIMIT, LEFT, STOP, BRIEF, SKIP, STUB = 1, 2, 4, 8, 16, 32
"""Flags: it names a limit of context, leaves work over, stops, cuts short, skips checks, leaves stubs."""

_SCARCE = r"\b(?:limited|remaining|low on|little|few|out of|running short of|save|conserve)\W+(?:\w+\W+){0,2}"
_OPEN_WORK = r"\b(?:remaining|other|outstanding) (?:work|tasks?|items?|steps?|parts?|cases|changes|files|modules)\b"
_LATER = r"\b(?:for later|later on|at a later|another (?:session|time|day)|a future|a later)\b"

# (flag, trigger, pattern): the pattern is tried only where its trigger stands in the lowered text, for speed.
_PHRASES: tuple[tuple[int, str, re.Pattern[str]], ...] = tuple(
    (flag, trigger, re.compile(pattern))
    for flag, trigger, pattern in (
        (LIMIT, "context", _SCARCE + "context"),
        (LIMIT, "context", r"context(?: window| limit| budget| space| length)? (?:is|gets?|almost|nearly|will)\b.{0,24}"
                           r"\b(?:limit|full|short|low|out|exceed|end)"),
        (LIMIT, "context", r"\bcontext (?:i have )?left\b|\bcontext (?:does not|doesn't|cannot) (?:allow|hold|fit)"),
        (LIMIT, "token", r"\b(?:limited|remaining|low on|out of|running short of|sav(?:e|ing)|conserv(?:e|ing)|"
                         r"economical with|careful with) (?:my |the )?tokens\b|\btokens are (?:limited|short|few)"),
        (LIMIT, "space", r"\b(?:limited|remaining|running out of) space\b"),
        (LEFT, "rest", r"\bleav(?:e|ing) (?:the )?rest\b"),
        (LEFT, "rest", r"\bthe rest (?:can|could|will|should|of (?:it|this|the work)) (?:be|later|left|remains)"),
        (LEFT, "remain", _OPEN_WORK + r".{0,40}\b(?:left|later|future|follow|another|next session|for you)"),
        (LEFT, "remain", _OPEN_WORK + r" (?:can|could|should|may) be "),
        (LEFT, "left as", r"\bleft (?:as an exercise|to the reader|for (?:a |the )?(?:next|later|another))\b"),
        (LEFT, "follow-up", r"\b(?:in|as|for) (?:a |an )?(?:later |future )?follow-up\b"),
        (LEFT, "later", r"\b(?:leav|do|finish|complet|handl|add|postpon|defer)\w*\b.{0,40}" + _LATER),
        (STOP, "stop", r"\bi(?:'ll| will)? stop (?:here|at this point|now)\b"),
        (STOP, "have to do", r"\b(?:that|this|it) will have to do\b"),
        (STOP, "end here", r"\b(?:i'll|i will|let me) end here\b"),
        (STOP, "wrap", r"\bwrap(?:ping)? (?:this |things |it |everything )?up\b"),
        (STOP, "good", r"\bgood (?:stopping (?:point|place)|(?:point|place) to (?:stop|end|pause))\b"),
        (STOP, "conclude", r"\b(?:i will|i'll|let me|time to) conclude\b"),
        (STOP, "enough for", r"\b(?:that's|is|should be) enough for (?:now|this|today)\b"),
        (BRIEF, "short", r"\b(?:keeping|keep) (?:it|this|things) short\b"),
        (BRIEF, "finali", r"\bfinali[sz]e (?:this |it )?(?:now|quickly|soon)\b"),
        (BRIEF, "brevity", r"\bfor (?:the sake of )?brevity\b"),
        (BRIEF, "in the interest", r"\bin the interests? of (?:time|space|brevity|length)\b"),
        (BRIEF, "brief", r"\b(?:keep|be|make) (?:(?:this|it|things|the rest|everything|the remaining \w+) )?"
                         r"(?:very |more )?brief\b"),
        (BRIEF, "quick", r"\bquickly (?:finish|wrap|finali[sz]e|complete)\w* (?:this|it|up|things|all|the rest)\b"),
        (BRIEF, "simplif", r"\bsimplified (?:version|implementation|form)\b(?! of)"),
        (SKIP, "skip", r"\bskip(?:ping)?\b.{0,30}\b(?:tests?|verif\w+|check\w*|remaining|rest|build|lint\w*)\b"),
        (SKIP, "not run", r"\bso i (?:do|will|did) not run (?:it|this|them)\b"),
        (SKIP, "without running", r"\bwithout running\b"),
        (SKIP, "should work", r"\b(?:this|that|it|everything|which) should work(?: fine| now| as is)?(?:[.!,]|$)"),
        (SKIP, "no need to", r"\bno need to (?:(?:re-?)?(?:run|verify|test)|check (?:it|this|that|again|all))\b"),
        (SKIP, "assum", r"\bassum(?:e|ing)\b.{0,24}\b(?:works?|pass(?:es)?|is fine|are fine|is correct)\b"),
    )
)  # fmt: skip

_STUBS = ("TODO", "FIXME", "placeholder", "Placeholder", "omitted for brevity", "rest of the", "for now")

_HEAD, _TAIL = 160, 340


def text_marks(text: str) -> int:
    """Which kinds of wrapping up early stand at the beginning or the end of a message."""
    if len(text) > _HEAD + _TAIL:
        text = f"{text[:_HEAD]}\n{text[-_TAIL:]}"
    low = text.lower().replace("’", "'")
    marks = 0
    for flag, trigger, pattern in _PHRASES:
        if not marks & flag and trigger in low and pattern.search(low):
            marks |= flag
    return marks


def stub_marks(name: str, value: dict[str, Any]) -> int:
    """STUB when a write or edit puts in a placeholder that was not there before."""
    if name not in ("write", "edit"):
        return 0
    after, before = value.get("new_string") or value.get("content"), value.get("old_string") or ""
    if not isinstance(after, str) or not isinstance(before, str):
        return 0
    return STUB if any(stub in after and stub not in before for stub in _STUBS) else 0

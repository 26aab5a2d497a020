"""Which checks are run together, what they are run as, and how their ends are read. Pure (S25).

Checks with the same command and tests of their own are one run: does it pass, each of them does. Does it not, its
output may hint at which ones failed; it is divided, and each criterion gets a verdict only from a run that passed, or
from runs of it alone. Criteria that are known to be flaky are kept apart from the others, so that they do not make
large runs fail.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from holdfast.facts.contract import Check
from holdfast.kinds.mission.contract.contents import command_line, metric_holds, metric_value

COMMAND_MAX = 60_000
"""Bytes of a command line: the system takes no argument beyond 128 KiB."""

TOGETHER_S = 1_800.0
"""A run of many checks may take as long as all of them, but no longer than this, or than the longest of them."""

FEW = 3
"""Groups of so many are not divided further but run one by one; flaky checks are run in groups of so many."""

OUTPUT_MAX = 2_000
"""Characters of the end of a run's output that are kept with its verdict."""

NOT_RUN = (126, 127)
"""Exit statuses of a shell that could not run a command."""

Outcome = Literal["pass", "fail", "error", "timeout"]


class Group(NamedTuple):
    """Criteria whose checks are one run."""

    names: tuple[str, ...]
    checks: tuple[Check, ...]

    def part(self, names: Collection[str]) -> Group:
        """The same, with these criteria only."""
        kept = [(name, check) for name, check in zip(self.names, self.checks, strict=True) if name in names]
        return Group(tuple(name for name, _ in kept), tuple(check for _, check in kept))

    @property
    def divisible(self) -> bool:
        """Whether a part of it would be another run than the whole."""
        return len(self.names) > 1 and bool(self.checks[0].tests)

    @property
    def timeout_s(self) -> float:
        """How long its run may take."""
        longest = max(check.timeout_s for check in self.checks)
        if not self.divisible:
            return longest
        return min(sum(check.timeout_s for check in self.checks), max(longest, TOGETHER_S))

    @property
    def command(self) -> str:
        """What is typed, as a person would."""
        tests = dict.fromkeys(test for check in self.checks for test in check.tests)
        return command_line(msgspec.structs.replace(self.checks[0], tests=tuple(tests)))


def groups(checks: dict[str, Check], flaky: Collection[str] = ()) -> list[Group]:
    """The runs that these criteria need when all goes well, those of steady criteria first."""
    found: dict[tuple[object, ...], list[str]] = {}
    for name, check in checks.items():
        alone = name if check.metric is not None else ""
        found.setdefault((name in flaky, check.command, bool(check.tests), alone), []).append(name)
    ordered = sorted(found.items(), key=lambda each: bool(each[0][0]))
    whole = [(bool(key[0]), Group(tuple(names), tuple(checks[name] for name in names))) for key, names in ordered]
    return [part for moody, group in whole for part in _bounded(group, FEW if moody else len(group.names))]


def _bounded(group: Group, most: int) -> Iterable[Group]:
    if not group.divisible or (len(group.names) <= most and len(group.command.encode()) <= COMMAND_MAX):
        return (group,)
    return (part for half in halves(group) for part in _bounded(half, most))


def halves(group: Group) -> tuple[Group, Group]:
    """Two parts of about the same size."""
    middle = (len(group.names) + 1) // 2
    return group.part(group.names[:middle]), group.part(group.names[middle:])


_BAD = re.compile(r"\b(?:FAIL(?:ED|URE)?|ERROR|not ok|failed)\b")


def named(group: Group, output: str) -> tuple[str, ...]:
    """Criteria that the output of a run that failed speaks of; none when those are too many to mean anything.

    The output is the word of whatever ran: it may decide about the order of work, never about a verdict.
    """
    lines = "\n".join(line for line in output.splitlines() if _BAD.search(line))
    found = tuple(
        name
        for name, check in zip(group.names, group.checks, strict=True)
        if any(re.search(rf"{re.escape(test)}(?![\w\[])", lines) for test in check.tests)
    )
    return found if len(found) <= max(1, len(group.names) // 4) else ()


def divided(group: Group, output: str) -> tuple[Group, ...]:
    """The runs after one that failed: few are run one by one, what the output names alone and the rest together, or
    two halves.
    """
    if len(group.names) <= FEW:
        return tuple(group.part((name,)) for name in group.names)
    suspects = named(group, output)
    if not suspects:
        return halves(group)
    rest = group.part([name for name in group.names if name not in suspects])
    return (rest, *(group.part((name,)) for name in suspects))


def script(group: Group) -> str:
    """The command for the hands. What a metric's command prints comes last, whatever it says on the side."""
    if group.checks[0].metric is None:
        return group.command
    quoted = shlex.quote(group.command)
    return f'said=$(eval {quoted}); status=$?; printf "%s\\n" "$said"; exit "$status"'


class Read(NamedTuple):
    """What a run says. `value` is a metric's."""

    outcome: Outcome
    value: float | None = None


def read(check: Check, exit_code: int | None, output: str, *, timed_out: bool = False, cut: bool = False) -> Read:
    """The end of a run, from the journal of the hands; only a metric's number is in what it printed.

    `cut` says that something else than the command itself ended it. No exit status, or one that says that the command
    was not found or cannot be run, is an error: nothing was checked.
    """
    if timed_out:
        return Read("timeout")
    if exit_code is None or cut or exit_code in NOT_RUN:
        return Read("error")
    if exit_code != 0:
        return Read("fail")
    if check.metric is None:
        return Read("pass")
    value = metric_value(output)
    if value is None:
        return Read("error")
    return Read("pass" if metric_holds(check.metric, value) else "fail", value)


def key(tree: str, contract: str, environment: str, laid: str) -> str:
    """What a verdict holds under: the digest of a contract stands for each of its checks, `laid`, the tree that is
    checked out in place of `tree`, for the protected files (S25).
    """
    return _digest((tree, contract, environment, laid))


def tail(output: str) -> str:
    """The end of an output, from the beginning of a line where there is one."""
    if len(output) <= OUTPUT_MAX:
        return output
    cut = output[-OUTPUT_MAX:]
    return cut.partition("\n")[2] or cut


def _digest(parts: Sequence[str]) -> str:
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()


LINES_SHOWN = 2
"""So many telling lines of an output are quoted."""

_RESOLVER = re.compile(
    r"Name or service not known|Temporary failure in name resolution|nodename nor servname|No address associated with"
    r"|getaddrinfo (?:failed|E[A-Z_]+)|\bENOTFOUND\b|\bEAI_AGAIN\b|Could not resolve host|no such host"
    r"|unable to resolve host|Failed to resolve|Network is unreachable|\bENETUNREACH\b|NewConnectionError"
    r"|the policy does not (?:let hands talk|allow connections) to"
)
_HOST = r"([A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,})"
_NAMED = (
    re.compile(rf"the policy does not (?:let hands talk|allow connections) to {_HOST}"),
    re.compile(rf"(?:ENOTFOUND|EAI_AGAIN|Could not resolve host:|lookup|host address|resolve|host=)\W{{0,2}}{_HOST}"),
    re.compile(rf"\bhttps?://{_HOST}"),
)
_MODULE = re.compile(
    r"(?:No module named |Cannot find module |Cannot find package |cannot find package )['\"`]?(@?[\w./-]+)"
)
_TELLING = re.compile(
    r"^E {2,}\S|^\S*(?:Error|Exception|Exit|Interrupt)\b.*|^FAILED |^not ok |^--- FAIL|^\s*✗|\berror:"
)
_DULL = re.compile(r"^[=\-_ .~^]*$|^=+ .* =+$|^\d+ (?:passed|failed)|^FAILED \((?:failures|errors)=")


class Obstacle(msgspec.Struct, frozen=True):
    """Why a check cannot pass here. `what` is the host or module, empty when unknown; `sure` when it is no hint."""

    kind: Literal["network", "module", "hangs"]
    what: str = ""
    sure: bool = False

    def words(self) -> str:
        """What is in the way."""
        match self.kind:
            case "network":
                host = self.what or "a host that its output does not name"
                return f"it needs the network: {host}{'' if self.sure or not self.what else ', by its output'}"
            case "module":
                return f"module {self.what} is not installed"
            case _:
                return "it did not end in its time"

    def advice(self) -> str:
        """What to allow or add, in general words."""
        match self.kind:
            case "network":
                return f"allow {self.what or 'the host'} with --allow-host, or make the check work offline"
            case "module":
                return f"add {self.what} to the project's environment, or name the file that provides it in `paths`"
            case _:
                return "give it more time with `timeout_s`, or make it end"


def obstacle(
    command: str, output: str, *, timed_out: bool = False, refused: Sequence[str] = (), own: Collection[str] = ()
) -> Obstacle | None:
    """What kept a run that failed from passing, None when nothing but the work did.

    `refused` are hosts that the egress proxy refused meanwhile, `own` the names of the project's modules, which are no
    obstacle: they are there, or to be made.
    """
    if refused:
        return Obstacle(
            "network", next((host for host in refused if host in output or host in command), refused[0]), True
        )
    if timed_out:
        return Obstacle("hangs")
    if _RESOLVER.search(output):
        return Obstacle("network", _host(output) or _host(command))
    missing = [found for found in _MODULE.findall(output) if not _is_own(found, own)]
    return Obstacle("module", missing[-1]) if missing else None


def telling(output: str) -> tuple[str, ...]:
    """The last lines of an output that say why it failed."""
    lines = [line.rstrip() for line in output.splitlines() if not _DULL.search(line.strip())]
    found = [line for line in lines if _TELLING.search(line)]
    kept = found[-LINES_SHOWN:] if found else lines[-1:]
    return tuple(dict.fromkeys(line.removeprefix("E ").strip() for line in kept))


def _host(text: str) -> str:
    for pattern in _NAMED:
        found = [host for host in pattern.findall(text) if not host.startswith("localhost")]
        if found:
            return str(found[-1])
    return ""


def _is_own(module: str, own: Collection[str]) -> bool:
    return module.startswith((".", "/")) or re.split(r"[./]", module)[0] in own

"""Runs of checks: grouping, command lines, outcomes, and obstacles outside the work. Pure (S25).

Checks with the same command and tests of their own share a run: if it passes, each of them passes. If it fails, the
group is divided with hints from its output, and each criterion gets its verdict from a passing run or from runs of its
own. Criteria known to be flaky are run apart from the others, so that they do not fail large runs.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from holdfast.facts.mission import Check
from holdfast.kinds.mission.contract.contents import command_line, metric_holds, metric_value

COMMAND_MAX = 60_000
"""Most bytes of a command line: Linux accepts no argument above 128 KiB."""

TOGETHER_S = 1_800.0
"""Limit for the sum of timeouts of a run of many checks, unless one of them alone is longer."""

FEW = 3
"""Groups up to this size are run one by one, not divided; flaky checks are run in groups of this size."""

OUTPUT_MAX = 2_000
"""Characters at the end of an output that are kept with the verdict."""

NOT_RUN = (126, 127)
"""Exit statuses of a shell that could not run a command."""

Outcome = Literal["pass", "fail", "error", "timeout"]


class Group(NamedTuple):
    """Criteria whose checks share a run."""

    names: tuple[str, ...]
    checks: tuple[Check, ...]

    def part(self, names: Collection[str]) -> Group:
        """Return the group reduced to these criteria."""
        kept = [(name, check) for name, check in zip(self.names, self.checks, strict=True) if name in names]
        return Group(tuple(name for name, _ in kept), tuple(check for _, check in kept))

    @property
    def divisible(self) -> bool:
        """True if a part of the group would be a different run."""
        return len(self.names) > 1 and bool(self.checks[0].tests)

    @property
    def timeout_s(self) -> float:
        """Timeout of the run in seconds."""
        longest = max(check.timeout_s for check in self.checks)
        if not self.divisible:
            return longest
        return min(sum(check.timeout_s for check in self.checks), max(longest, TOGETHER_S))

    @property
    def command(self) -> str:
        """Command line as a user would type it."""
        tests = dict.fromkeys(test for check in self.checks for test in check.tests)
        return command_line(msgspec.structs.replace(self.checks[0], tests=tuple(tests)))


def groups(checks: dict[str, Check], flaky: Collection[str] = ()) -> list[Group]:
    """Return the runs that these criteria need if all pass, those of steady criteria first."""
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
    """Split a group into two parts of about the same size."""
    middle = (len(group.names) + 1) // 2
    return group.part(group.names[:middle]), group.part(group.names[middle:])


_BAD = re.compile(r"\b(?:FAIL(?:ED|URE)?|ERROR|not ok|failed)\b")


def named(group: Group, output: str) -> tuple[str, ...]:
    """Return criteria that the output of a failed run mentions; none if there are too many to be a hint.

    The output is untrusted: it may influence the order of work, never a verdict.
    """
    lines = "\n".join(line for line in output.splitlines() if _BAD.search(line))
    found = tuple(
        name
        for name, check in zip(group.names, group.checks, strict=True)
        if any(re.search(rf"{re.escape(test)}(?![\w\[])", lines) for test in check.tests)
    )
    return found if len(found) <= max(1, len(group.names) // 4) else ()


def divided(group: Group, output: str) -> tuple[Group, ...]:
    """Return the runs after a failed one: each criterion alone if there are few; else those that the output names alone
    and the rest together; else two halves.
    """
    if len(group.names) <= FEW:
        return tuple(group.part((name,)) for name in group.names)
    suspects = named(group, output)
    if not suspects:
        return halves(group)
    rest = group.part([name for name in group.names if name not in suspects])
    return (rest, *(group.part((name,)) for name in suspects))


def script(group: Group) -> str:
    """Return the command for the hands. A metric's standard output is printed last, after all of its standard error."""
    if group.checks[0].metric is None:
        return group.command
    quoted = shlex.quote(group.command)
    return f'said=$(eval {quoted}); status=$?; printf "%s\\n" "$said"; exit "$status"'


class Read(NamedTuple):
    """Outcome of a run, with the value of a metric."""

    outcome: Outcome
    value: float | None = None


def read(check: Check, exit_code: int | None, output: str, *, timed_out: bool = False, cut: bool = False) -> Read:
    """Read a run's outcome from its exit status in the hands' journal; only a metric's value comes from the output.

    `cut` means that the command did not end by itself. No exit status, or one for a command that was not found or
    cannot be run, is an error: nothing was checked.
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
    """Return the key of a verdict. The digest of the contract covers its checks; `laid`, the tree that is checked out
    in place of `tree`, covers the protected files (S25).
    """
    return hashlib.sha256(msgspec.json.encode((tree, contract, environment, laid))).hexdigest()


def tail(output: str) -> str:
    """Return the end of an output, from the start of a line if possible."""
    if len(output) <= OUTPUT_MAX:
        return output
    cut = output[-OUTPUT_MAX:]
    return cut.partition("\n")[2] or cut


# --- obstacles -------------------------------------------------------------------------------------

LINES_SHOWN = 2
"""Lines of an output that are quoted."""

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
    """Reason outside the work that prevents a check from passing. `what` is a host or module, or empty if unknown."""

    kind: Literal["network", "module", "hangs"]
    what: str = ""
    sure: bool = False
    """True if the egress proxy refused the host; otherwise the obstacle is only a hint in the output."""

    def words(self) -> str:
        """Describe the obstacle."""
        match self.kind:
            case "network":
                host = self.what or "a host that its output does not name"
                return f"it needs the network: {host}{'' if self.sure or not self.what else ', by its output'}"
            case "module":
                return f"module {self.what} is not installed"
            case _:
                return "it exceeded its timeout"

    def advice(self) -> str:
        """Advise what to allow or add."""
        match self.kind:
            case "network":
                return f"allow {self.what or 'the host'} with --allow-host, or make the check work offline"
            case "module":
                return f"add {self.what} to the project's environment, or name the file that provides it in `paths`"
            case _:
                return "raise `timeout_s`, or make the check end"


def obstacle(
    command: str, output: str, *, timed_out: bool = False, refused: Sequence[str] = (), own: Collection[str] = ()
) -> Obstacle | None:
    """Find the obstacle of a failed run; None if only the work is at fault.

    `refused` are hosts that the egress proxy refused during the run. `own` are names of the project's modules, which
    are no obstacle: they exist or are to be made.
    """
    if refused:
        return Obstacle(
            "network", next((host for host in refused if host in output or host in command), refused[0]), True
        )
    if timed_out:
        return Obstacle("hangs")
    if _RESOLVER.search(output):
        return Obstacle("network", _host(output) or _host(command))
    named = [found for found in _MODULE.findall(output) if not found.startswith((".", "/"))]
    missing = [found for found in named if re.split(r"[./]", found)[0] not in own]
    return Obstacle("module", missing[-1]) if missing else None


def telling(output: str) -> tuple[str, ...]:
    """Return the last lines of an output that explain the failure."""
    lines = [line.rstrip() for line in output.splitlines() if not _DULL.search(line.strip())]
    found = [line for line in lines if _TELLING.search(line)]
    kept = found[-LINES_SHOWN:] if found else lines[-1:]
    return tuple(dict.fromkeys(line.removeprefix("E ").strip() for line in kept))


def exit_status(exit_code: int | None) -> str:
    """Return the exit status in words: a command that was killed has none."""
    return "no exit status" if exit_code is None else f"exit status {exit_code}"


def _host(text: str) -> str:
    for pattern in _NAMED:
        found = [host for host in pattern.findall(text) if not host.startswith("localhost")]
        if found:
            return str(found[-1])
    return ""

"""Report of the demo mission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.app.exits import DONE, FAILED
from holdfast.proof.demo.mission.count import MissionCounts
from holdfast.proof.demo.mission.live import Lived
from holdfast.proof.demo.mission.material import MissionMaterial
from holdfast.proof.demo.mission.truth import Truth
from holdfast.service.event_lines import counted
from holdfast.session.money import usd, usd_float


@dataclass(frozen=True)
class MissionStory:
    """Data that the report shows. `status` and `reason` are the mission's, `cap_pico` its budget cap.

    `brief_wrong` are statements of its brief that its logs contradict.
    """

    session_id: str
    material: MissionMaterial
    counts: MissionCounts
    truth: Truth
    lived: Lived
    status: str
    reason: str
    cap_pico: int | None
    brief_wrong: tuple[str, ...]
    chain_ok: bool
    wall_s: float

    @property
    def false_done(self) -> tuple[str, ...]:
        """Criteria with a check that the mission reports as met although their tests fail on the clean clone."""
        finished = self.counts.finished
        said = finished.met if finished else ()
        checked = {each.id for each in self.material.answers.criteria if not each.rubric}
        return tuple(name for name in said if name in checked and name not in self.truth.met)

    @property
    def sound(self) -> bool:
        """True if every claim of the harness is true."""
        return not (self.false_done or self.truth.red_commits or self.brief_wrong) and self.chain_ok

    @property
    def exit_code(self) -> int:
        """Status of the mission; 1 if one of its claims is false or its suite differs from the published one's."""
        if self.lived.exit_code == DONE:
            return DONE if self.sound and self.truth.suite_green else FAILED
        return self.lived.exit_code if self.sound else FAILED

    def lines(self) -> list[str]:
        """Return the report as text."""
        library, answers, truth = self.material.library, self.material.answers, self.truth
        bodies = sum(len(item.bodies) for item in self.material.items)
        rubric = sum(each.rubric for each in answers.criteria)
        rows = [
            ("library", f"{library.pin} ({library.licence}), {bodies} bodies taken out"),
            ("model", "an oracle in all roles: it knew the true bodies. This shows the runtime, not a model's skill"),
            ("contract", f"{len(self.material.items)} items, {len(answers.criteria)} criteria, {rubric} for judges"),
            ("ended", f"{self.status}{f' ({self.reason})' if self.reason else ''}"),
            ("met", f"{len(truth.met)} of {len(answers.criteria)} criteria, by their tests on a clean clone"),
            ("suite", self._suite()),
            ("commits", self._commits()),
            ("killed", f"the whole runtime {counted(len(self.lived.kills), 'time')} with SIGKILL"),
            ("faults", self._faults()),
            ("judges", self._judges()),
            ("checks", f"{self.counts.checked} verdicts, {self.counts.checked_twice} made twice"),
            ("brief", "agrees with the log" if not self.brief_wrong else f"WRONG: {'; '.join(self.brief_wrong[:3])}"),
            ("cost", self._cost()),
            ("log", f"{self.counts.events} events, {counted(self.counts.shifts, 'shift')}, chain "
                    f"{'verified' if self.chain_ok else 'BROKEN'}"),
            ("time", f"{self.wall_s:.1f} s"),
        ]  # fmt: skip
        if self.false_done:
            rows.insert(5, ("UNTRUE", f"said to be met and not: {', '.join(self.false_done)}"))
        return [f"  {name:<9} {text}" for name, text in rows]

    def _suite(self) -> str:
        found, true = self.truth.suite, self.truth.true_suite
        state = "as the true library" if self.truth.suite_green else "OTHER THAN THE TRUE LIBRARY"
        words = f"{found.passed} passed, {found.failed + found.errors} failed"
        if not self.truth.suite_green:
            words += f"; the true library {true.passed} and {true.failed + true.errors}"
        return f"{state}: {words}, on clean clones in fresh hands"

    def _commits(self) -> str:
        red = f"{len(self.truth.red_commits)} RED" if self.truth.red_commits else "every one green on replay"
        return f"{self.truth.commits} on the first-parent line, {red}"

    def _faults(self) -> str:
        if not self.counts.faults:
            return "none"
        return "; ".join(
            f"{kind} {each.had} times: {each.caught} caught, {each.listed} listed, {each.through} through"
            for kind, each in self.counts.faults.items()
        )

    def _judges(self) -> str:
        words = ", ".join(f"{count} {word}" for word, count in sorted(self.counts.judged.items())) or "not asked"
        if not self.truth.rubric_passed:
            return words
        return f"{words}; of {self.truth.rubric_passed} rubric lines passed, {self.truth.rubric_false} wrongly"

    def _cost(self) -> str:
        roles = ", ".join(
            f"{role} {usd(cost)}" for role, cost in self.counts.cost.items() if self.counts.requests[role]
        )
        cap = f" of {usd(self.cap_pico)}" if self.cap_pico is not None else ""
        return f"{usd(self.counts.cost_pico)}{cap} at a nominal price ({roles})"

    def public(self) -> dict[str, Any]:
        """Return the last line of `--json`."""
        counts, truth = self.counts, self.truth
        return {
            "type": "result",
            "session_id": self.session_id,
            "status": self.status,
            "stop_reason": self.reason or self.status,
            "exit_code": self.exit_code,
            "library": self.material.library.pin,
            "items": len(self.material.items),
            "criteria": len(self.material.answers.criteria),
            "rubric_criteria": sum(each.rubric for each in self.material.answers.criteria),
            "met": list(truth.met),
            "said_met": sorted(counts.finished.met) if counts.finished else [],
            "false_done": list(self.false_done),
            "suite_green": truth.suite_green,
            "tests": msgspec.to_builtins(truth.suite),
            "true_tests": msgspec.to_builtins(truth.true_suite),
            "worse": list(truth.worse),
            "head": truth.head,
            "commits": truth.commits,
            "red_commits": list(truth.red_commits),
            "kills": len(self.lived.kills),
            "faults": msgspec.to_builtins({kind: vars(each) for kind, each in counts.faults.items()}),
            "refused": dict(counts.refused),
            "rules": dict(counts.rules),
            "unasked": counts.unasked,
            "judged": dict(counts.judged),
            "rubric_passed": truth.rubric_passed,
            "rubric_false": truth.rubric_false,
            "verdicts": counts.checked,
            "verdicts_again": counts.checked_twice,
            "sessions": dict(counts.sessions),
            "requests": dict(counts.requests),
            "presumed": counts.presumed,
            "unknown": counts.unknown,
            "cost_usd": usd_float(counts.cost_pico),
            "cost_by_role_usd": {role: usd_float(cost) for role, cost in counts.cost.items()},
            "cap_usd": usd_float(self.cap_pico),
            "events": counts.events,
            "shifts": counts.shifts,
            "brief_wrong": list(self.brief_wrong),
            "chain_ok": self.chain_ok,
            "repo": str(self.material.repo),
            "wall_s": round(self.wall_s, 3),
        }

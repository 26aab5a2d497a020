"""Sixty series with known answers: when an alert is raised and cleared.

A line is: name | when | options | what happens | what the alert does. Times are in minutes. `errors=5@3` is a report at
3; `~2` makes it late: it becomes known two minutes after its time. `done@4`, `failed@4:0.5` end a firing, at a cost.
`to@60` is the end. The alert is looked at when something happens and when the evaluation itself asks for it, nothing
else: this also shows that no change is missed.
"""

from __future__ import annotations

import re

import pytest

from holdfast.kinds.duty.expressions import Ending, History, Sample
from holdfast.kinds.duty.judging import Standing, condition, judge

SERIES = """
over a threshold | errors > 10 | | errors=5@1 errors=11@2 errors=12@3 to@9 | raise@2
at a threshold is not over it | errors > 10 | | errors=10@1 to@9 |
back below | errors > 10 | | errors=11@1 errors=9@3 to@9 | raise@1 clear@3
never reported | errors > 10 | | to@90 |
raised twice | errors > 10 | | errors=11@1 errors=1@2 errors=11@3 to@9 | raise@1 clear@2 raise@3
below a floor | free < 5 | | free=9@1 free=4@2 free=6@3 to@9 | raise@2 clear@3
fractions | ratio >= 0.5 | | ratio=0.49@1 ratio=0.5@2 to@9 | raise@2
negative | temp < -5 | | temp=-4@1 temp=-6@2 to@9 | raise@2
zero | queue == 0 | | queue=3@1 queue=0@2 queue=1@3 to@9 | raise@2 clear@3
two values | errors > 10 && load > 1 | | errors=11@1 load=2@2 load=0@3 to@9 | raise@2 clear@3
either value, one unknown | errors > 10 || load > 1 | | errors=11@1 to@9 | raise@1
either value, the known one is low | errors > 10 || load > 1 | | errors=1@1 load=2@4 to@9 | raise@4
both, one unknown | errors > 10 && load > 1 | | errors=11@1 to@9 |
arithmetic with whole numbers | errors * 2 + 1 > 20 | | errors=9@1 errors=10@2 to@9 | raise@2
a quotient | errors / total > 0.1 | | total=100@0 errors=5@1 errors=20@2 to@9 | raise@2
flapping without hysteresis | n > 10 | | n=11@1 n=9@2 n=11@3 n=9@4 to@9 | raise@1 clear@2 raise@3 clear@4
flapping with hysteresis | n > 10 | clear=n<5 | n=11@1 n=9@2 n=11@3 n=9@4 n=4@5 to@9 | raise@1 clear@5
cleared only after a while | n > 10 | after=3 | n=11@1 n=9@2 n=11@4 n=9@5 to@19 | raise@1 clear@8
hysteresis never reached | n > 10 | clear=n<5 | n=11@1 n=9@2 n=6@3 to@9 | raise@1
hysteresis, again after it | n > 10 | clear=n<5 | n=11@1 n=4@2 n=7@3 n=12@4 to@9 | raise@1 clear@2 raise@4
flapping within its duration | n > 10 | for=3 | n=11@1 n=9@2 n=11@3 n=9@4 n=11@5 n=9@6 to@19 |
held for its duration | n > 10 | for=3 | n=11@1 to@19 | raise@4
held, with more reports | n > 10 | for=3 | n=11@1 n=12@2 n=13@3 to@19 | raise@4
the duration starts again | n > 10 | for=3 | n=11@1 n=9@3 n=11@4 to@19 | raise@7
over before its duration | n > 10 | for=3 | n=11@1 n=9@3 to@19 |
a duration, then cleared | n > 10 | for=3 | n=11@1 n=1@6 to@19 | raise@4 clear@6
a duration of one report | n > 10 | for=5 | n=11@1 n=11@20 to@30 | raise@6
flapping within the cooldown | n > 10 | cool=10 | n=11@1 n=9@2 n=11@3 n=9@4 to@30 | raise@1 clear@2
still true after the cooldown | n > 10 | cool=10 | n=11@1 n=9@2 n=11@3 to@30 | raise@1 clear@2 raise@12
the cooldown has passed | n > 10 | cool=10 | n=11@1 n=9@2 n=11@20 to@30 | raise@1 clear@2 raise@20
no cooldown before the first | n > 10 | cool=10 | n=11@1 to@30 | raise@1
cooldown and duration | n > 10 | cool=10 for=5 | n=11@1 n=9@7 n=11@8 to@40 | raise@6 clear@7 raise@17
cooldown and hysteresis | n > 10 | cool=5 clear=n<5 | n=11@1 n=4@2 n=11@3 n=6@4 n=11@6 to@40 | raise@1 clear@2 raise@7
silence since the start | missing("n", "12m") | | to@60 | raise@12
silence after a report | missing("n", "12m") | | n=1@5 to@60 | raise@17
silence ends | missing("n", "12m") | | n=1@5 n=1@20 to@25 | raise@17 clear@20
silence, ended in time | missing("n", "12m") | | n=1@5 n=1@16 n=1@27 to@38 |
silence, again and again | missing("n", "5m") | | n=1@1 n=1@10 n=1@20 to@22 | raise@6 clear@10 raise@15 clear@20
another value is no sign of life | missing("n", "12m") | | m=1@5 to@60 | raise@12
silence of all values | missing("12m") | | n=1@3 m=1@6 to@60 | raise@18
silence for a duration | missing("n", "12m") | for=3 | n=1@5 to@60 | raise@20
gap: the last value counts | n > 10 | | n=11@1 to@1000 | raise@1
gap: only recent values | n > 10 && !missing("n", "5m") | | n=11@1 to@60 | raise@1 clear@6
growth within a window | delta("n", "10m") >= 5 | | n=1@0 n=4@5 n=6@8 to@9 | raise@8
growth over longer than the window | delta("n", "10m") >= 5 | | n=1@0 n=3@20 n=5@40 n=7@60 to@69 |
growth that leaves the window | delta("n", "10m") >= 5 | | n=0@0 n=6@5 to@60 | raise@5 clear@15
the first value is no growth | delta("n", "10m") >= 5 | | n=100@5 to@60 |
a fall | delta("n", "10m") <= -5 | | n=9@0 n=3@5 to@9 | raise@5
a gap in a window | delta("n", "10m") >= 5 | | n=1@0 n=9@30 to@35 | raise@30
rate of a counter | rate("n", "10m") > 0.01 | | n=0@0 n=3@3 n=7@6 to@7 | raise@6
rate falls with time | rate("n", "10m") > 0.01 | | n=0@0 n=7@2 to@60 | raise@2 clear@12
rate over a reset | rate("n", "10m") > 0.01 | | n=100@0 n=103@2 n=4@4 to@5 | raise@4
a reset is no growth | rate("n", "10m") > 0.01 | | n=100@0 n=101@2 n=2@4 to@60 |
several resets | rate("n", "10m") > 0.008 | | n=50@0 n=3@2 n=2@4 n=2@6 to@7 | raise@4
late data that raises | n > 10 | | n=5@1 n=12@4~2 to@9 | raise@6
late data that is already old | n > 10 | | n=5@6 n=12@4~4 to@9 |
late data completes a duration | n > 10 | for=5 | n=11@6 n=11@2~5 to@9 | raise@7
late data breaks a duration | n > 10 | for=5 | n=11@2 n=1@5~1 n=11@6 to@19 | raise@11
late data ends a silence | missing("n", "12m") | | n=1@10~3 to@20 | raise@12 clear@13
a failed firing | outcome == "failed" | | done@1 failed@2 done@3 to@9 | raise@2 clear@3
three failures in a row | failures >= 3 | | failed@1 failed@2 done@3 failed@4 timeout@5 failed@6 to@9 | raise@6
spend in total | spend_usd > 1 | | done@1:0.6 done@2:0.6 to@9 | raise@2
spend within a window | spend("10m") > 1 | | done@1:0.6 done@5:0.6 to@60 | raise@5 clear@11
no spend, much later | spend("10m") > 1 | | done@1:0.6 done@20:0.6 to@60 |
""".strip().splitlines()

MINUTE = 60_000_000


def options(text: str) -> dict[str, str]:
    """The options of a line."""
    return dict(each.split("=", 1) for each in text.split())


class World:
    """What happens in a series, as far as it is known at a time."""

    def __init__(self, text: str) -> None:
        self.samples: list[tuple[int, str, Sample]] = []
        self.endings: list[Ending] = []
        self.end = 0
        for each in text.split():
            what, _, when = each.partition("@")
            at, late, cost = re.fullmatch(r"(\d+)(?:~(\d+))?(?::([\d.]+))?", when).groups()  # type: ignore[union-attr]
            at_us = int(at) * MINUTE
            if what == "to":
                self.end = at_us
            elif "=" in what:
                name, _, value = what.partition("=")
                self.samples.append((at_us + int(late or 0) * MINUTE, name, Sample(at_us, float(value))))
            else:
                self.endings.append(Ending(at_us, what, float(cost or 0)))

    def known(self, now: int) -> History:
        """The history at a time."""
        series: dict[str, list[Sample]] = {}
        for at, name, sample in self.samples:
            if at <= now:
                series.setdefault(name, []).append(sample)
        endings = [each for each in self.endings if each.at_us <= now]
        ordered = {name: sorted(found) for name, found in series.items()}
        return History(0, ordered, endings, sum(each.cost_usd for each in endings))

    def news(self) -> list[int]:
        """The times at which something becomes known."""
        return sorted({at for at, _, _ in self.samples} | {each.at_us for each in self.endings})


def run(line: str) -> tuple[list[str], list[str]]:
    """What the alert does, and what the line says."""
    _, when, extra, happens, expected = (part.strip() for part in re.split(r"\s\|(?=\s|$)", line))
    wanted = options(extra)
    hold, after, cool = (60.0 * float(wanted.get(name, 0)) for name in ("for", "after", "cool"))
    rule = condition(when, wanted.get("clear", ""), hold, after, cool, ())
    world, standing, did = World(happens), Standing(), list[str]()
    news, now = world.news(), 0
    for _ in range(1_000):
        judged = judge(rule, world.known(now), standing, now)
        if judged.change:
            did.append(f"{judged.change}@{now // MINUTE}")
            standing = Standing(judged.change == "raise", now if judged.change == "clear" else standing.cleared_us)
            continue
        due = min([at for at in (*news, judged.due_us) if at is not None and at > now], default=world.end + 1)
        if due > world.end:
            return did, expected.split()
        now = due
    raise AssertionError("the alert asks to be looked at without end")


@pytest.mark.parametrize("line", SERIES, ids=lambda line: line.split("|")[0].strip())
def test_series(line: str) -> None:
    did, expected = run(line)
    assert did == expected


def test_there_are_sixty_series() -> None:
    assert len(SERIES) >= 60

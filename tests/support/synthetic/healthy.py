"""Synthetic healthy workers: they poll, back off, build, refactor, explore, test, and debug."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tests.support.synthetic.events import HELD_OUT, Done, Project, Say, Tale, Teller, backoff

# Ordinary sentences that resemble signs of trouble.
_ORDINARY = (
    "That wraps up the parser; next the printer.",
    "I skip the generated files, nothing there is ours.",
    "The rest of the file is fine.",
    "This should work once the import is there; I run the tests.",
    "The remaining failures all come from one fixture.",
    "A simplified version of the query shows the bug.",
    "I leave a TODO that was there before alone.",
    "The context manager is limited to one thread.",
    "Let me stop the server here and start it again.",
    "The token limit of the API is in the settings.",
    "I quickly finish the rename in the docs too.",
    "To keep the diff brief I move this to its own commit.",
    "I assume the rest of the schema is unchanged, and check it.",
    "No need to check the old branch.",
)

# Used only by workers with seeds from HELD_OUT on: no threshold or pattern was chosen with these.
_ORDINARY_HELD_OUT = (
    "I will wrap the call in a retry.",
    "The remaining two warnings come from a dependency; I look at them next.",
    "We can skip ahead to the second half of the trace, the first is noise.",
    "I leave the public names as they are.",
    "Context: the caller holds the lock already.",
    "A shorter version of the loop reads better.",
    "It should work on older versions too, which the next run will show.",
    "There are few tokens in that grammar.",
    "The later tests depend on this one.",
    "The rest can stay, it is used by the importer.",
    "In the interest of a small diff I do not reformat.",
)


class Worker:
    """Style of one worker: length of its texts, number of concurrent calls, and frequency of tests."""

    def __init__(self, teller: Teller, project: Project, *, held_out: bool = False) -> None:
        chance = teller.chance
        self.held_out = held_out
        self.sayings = _ORDINARY + _ORDINARY_HELD_OUT if held_out else _ORDINARY
        self.teller, self.project, self.chance = teller, project, chance
        self.words = chance.lognormvariate(3.2, 0.5)
        self.thinks = chance.random() < 0.4
        self.together = chance.choice((1, 1, 1, 2, 3))
        self.test_every = chance.choice((1, 1, 2, 3, 5))
        self.ordinary = chance.choice((0.0, 0.02, 0.05, 0.1))
        self.stubs = chance.choice((0.0, 0.0, 0.02, 0.04))
        self.mood = 1.0

    def say(self, *calls: Done) -> Say:
        """Make a turn in this worker's style."""
        words = int(self.words * self.mood * self.chance.lognormvariate(0, 0.5))
        text = self.project.prose(words) if self.chance.random() > 0.08 else ""
        if self.chance.random() < self.ordinary:
            text += " " + self.chance.choice(self.sayings)
        thinking = self.project.prose(int(words * self.chance.uniform(0.5, 3))) if self.thinks else ""
        return Say(text, calls, thinking)

    def do(self, *calls: Done) -> None:
        """Add a turn with these calls."""
        self.teller.tell(self.say(*calls))

    # --- single actions ---

    def read(self, path: str | None = None) -> Done:
        """Read a file."""
        path = path or self.chance.choice(self.project.files)
        return Done("read", {"file_path": path}, self.project.body(path), files=self.project.digest(path))

    def grep(self) -> Done:
        """Search a symbol."""
        symbol = self.chance.choice(self.project.symbols)
        places = self.chance.sample(self.project.files, self.chance.randint(0, 5))
        found = "\n".join(f"{path}:{self.chance.randint(1, 400)}:    {symbol}(x)" for path in places)
        if self.chance.random() < 0.5:
            return Done("grep", {"pattern": symbol}, found)
        return Done("bash", {"command": f"grep -rn {symbol} {self.chance.choice(('.', 'src', 'tests'))}"}, found)

    def edit(self, path: str | None = None, name: str = "") -> Done:
        """Change a file."""
        path = path or self.chance.choice(self.project.files)
        old, new = name or self.project.word(), f"{name}{self.project.word()}"
        if self.chance.random() < 0.12:
            command = f"sed -i 's/{old}/{new}/g' {path}"
            self.project.changed(path)
            return Done("bash", {"command": command})
        if self.chance.random() < 0.06:
            return Done(
                "edit", {"file_path": path, "old_string": old, "new_string": new}, "old_string not found", False
            )
        stub = "\n# TODO: faster" if self.chance.random() < self.stubs else ""
        value = {"file_path": path, "old_string": old, "new_string": new + stub}
        return Done("edit", value, f"Edited {path}", files=self.project.changed(path))

    def test(self) -> Done:
        """Run the tests; sometimes an edit has fixed one."""
        project = self.project
        return Done("bash", {"command": project.test_command}, project.report(), not project.failing, {}, 9_000.0)

    def look(self) -> Done:
        """Look at the tree."""
        command = self.chance.choice(("git status --short", "git diff --stat", "ls -la", "git log --oneline -5"))
        changed = sorted(self.project.versions.items())[-6:]
        return Done("bash", {"command": command}, "\n".join(f" M {path} | {count}" for path, count in changed))

    def commit(self) -> Done:
        """Commit."""
        what = self.project.prose(4)
        sha = f"{self.chance.getrandbits(28):07x}"
        return Done("bash", {"command": f"git commit -am '{what}'"}, f"[main {sha}] {what}\n 1 file changed")


def tdd(worker: Worker) -> None:
    """Test between edits, with the same failure for a while and occasional reruns."""
    chance, project = worker.chance, worker.project
    project.failing = chance.sample(project.tests, min(len(project.tests), chance.randint(1, 5)))
    worker.do(*(worker.read() for _ in range(chance.randint(1, worker.together + 1))))
    while project.failing:
        for _ in range(chance.randint(1, worker.test_every)):
            worker.do(worker.edit())
        if chance.random() < 0.35:
            project.failing.pop()
        for _ in range(chance.choice((1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3))):  # repeat: is it flaky?
            worker.do(worker.test())
        if chance.random() < 0.25:
            worker.do(worker.read())
    worker.do(worker.commit())


def refactor(worker: Worker) -> None:
    """Make the same small edit in many files, with tests in between or at the end."""
    chance, project = worker.chance, worker.project
    project.failing = []
    name = chance.choice(project.symbols)
    worker.do(worker.grep())
    every = chance.choice((2, 3, 5, 9))
    for index, path in enumerate(chance.sample(project.files, min(len(project.files), chance.randint(6, 20)))):
        calls = [worker.read(path)] if chance.random() < 0.3 else []
        calls += [worker.edit(path, name) for _ in range(chance.randint(1, worker.together))]
        worker.do(*calls)
        if index % every == every - 1:
            worker.do(worker.test())
    worker.do(worker.test())
    worker.do(worker.look(), worker.commit())


def explore(worker: Worker) -> None:
    """Read many files in turn, some of them twice."""
    chance = worker.chance
    favourite = chance.choice(worker.project.files)
    unread = chance.sample(worker.project.files, len(worker.project.files))
    for _ in range(chance.randint(8, 30)):
        if not unread:
            break
        roll = chance.random()
        if roll < 0.1:
            worker.do(worker.read(favourite))
        elif roll < 0.15:
            worker.do(worker.read())
        elif roll < 0.4:
            worker.do(worker.grep())
        elif roll < 0.48:
            worker.do(worker.look())
        else:
            count = min(len(unread), chance.randint(1, worker.together))
            worker.do(*(worker.read(unread.pop()) for _ in range(count)))


def poll(worker: Worker) -> None:
    """Poll a long build in the background, whose output changes or not."""
    chance, project = worker.chance, worker.project
    worker.do(Done("bash", {"command": "make -j2 all > build.log 2>&1 &"}))
    total, done = chance.randint(60, 900), 0
    moving = chance.random() < 0.6
    waits = backoff(chance)
    form = chance.choice(("sleep {0}; tail -n 4 build.log", "sleep {0} && tail -3 build.log", "two"))
    for _ in range(chance.randint(4, 35)):
        done = min(total, done + (chance.randint(1, 30) if moving else int(chance.random() < 0.1)))
        seen = f"[{project.now()}] [{done}/{total}] building\nload 2.{chance.randint(0, 99)}"
        seconds = next(waits)
        if form == "two":
            worker.do(Done("bash", {"command": f"sleep {seconds}"}, "", True, {}, seconds * 1e3))
            worker.do(Done("bash", {"command": "tail -n 4 build.log"}, seen))
        else:
            worker.do(Done("bash", {"command": form.format(seconds)}, seen, True, {}, seconds * 1e3))
    worker.do(Done("bash", {"command": "tail -n 20 build.log"}, "build finished\n" + project.prose(20)))


def watch(worker: Worker) -> None:
    """Wait for a remote pipeline with the tool's own wait."""
    chance = worker.chance
    number = chance.randint(1_000, 99_999)
    wait = chance.choice(
        (
            f"gh run watch {number} --exit-status",
            f"timeout 110 kubectl wait --for=condition=ready pod/{worker.project.word()} --timeout=100s",
            f"until grep -q done state.txt; do sleep 20; done; cat state.txt #{number}",
        )
    )
    for _ in range(chance.randint(2, 12)):
        worker.do(Done("bash", {"command": wait}, "timed out waiting for the condition", False, {}, 110_000.0))
    worker.do(Done("bash", {"command": wait}, "succeeded", True, {}, 60_000.0))


def retry(worker: Worker) -> None:
    """Retry an unreachable service with growing waits."""
    chance, project = worker.chance, worker.project
    target = f"https://{project.word()}.example/{project.word()}.tgz"
    failure = chance.choice(("curl: (7) Failed to connect", "HTTP 503 Service Unavailable", "429 Too Many Requests"))
    waits = backoff(chance)
    for _ in range(chance.randint(0, 2)):  # at once, before it waits
        worker.do(Done("bash", {"command": f"curl -fsSLO {target}"}, failure, False))
    for _ in range(chance.randint(2, 12)):
        worker.do(Done("bash", {"command": f"sleep {next(waits)}; curl -fsSLO {target}"}, failure, False))
    worker.do(Done("bash", {"command": f"sleep {next(waits)}; curl -fsSLO {target}"}))


def long_build(worker: Worker) -> None:
    """Run long builds that repeat warnings, with changes between them."""
    chance, project = worker.chance, worker.project
    warning = f"warning: {project.word()} is deprecated"
    for _ in range(chance.randint(3, 9)):
        lines = [f"[{index}/900] CC {project.word()}.o" for index in range(chance.randint(3, 12))]
        lines += [warning] * chance.randint(3, 30)
        good = chance.random() < 0.4
        lines.append("ok" if good else f"error: {project.word()} undeclared at line {chance.randint(1, 999)}")
        worker.do(Done("bash", {"command": "make all", "timeout_ms": 900_000}, "\n".join(lines), good, {}, 600_000.0))
        for _ in range(chance.randint(1, 3)):
            worker.do(worker.edit())


def data(worker: Worker) -> None:
    """Page through tables, try parameters, and read numbers."""
    chance, project = worker.chance, worker.project
    table = f"data/{project.word()}.csv"
    rows = ["{},{},{}".format(*(chance.randint(0, 9_999) for _ in range(3))) for _ in range(400)]
    for page in range(chance.randint(3, 10)):
        first = page * 40 + 1
        command = f"sed -n '{first},{first + 39}p' {table}"
        worker.do(Done("bash", {"command": command}, "\n".join(rows[first - 1 : first + 39])))
    loss = 2.0
    for _ in range(chance.randint(4, 14)):
        rate = chance.choice((0.1, 0.03, 0.01, 0.003))
        loss *= chance.uniform(0.85, 1.02)
        command = f"python train.py --lr {rate} --steps {chance.randint(1, 60) * 100}"
        worker.do(Done("bash", {"command": command}, f"epoch 3 loss {loss:.4f} in {chance.uniform(3, 9):.1f}s"))


def operate(worker: Worker) -> None:
    """Change settings, restart services, and check the same status each time."""
    chance, project = worker.chance, worker.project
    service = project.word()
    for _ in range(chance.randint(4, 12)):
        path = f"etc/{service}.toml"
        value = {"file_path": path, "old_string": project.word(), "new_string": project.word()}
        worker.do(Done("edit", value, f"Edited {path}", files=project.changed(path)))
        worker.do(Done("bash", {"command": f"systemctl restart {service}"}))
        state = chance.choice(("active (running)", "activating", "failed (exit-code)"))
        status = f"{service} {state} since {project.now()}; PID {chance.randint(900, 30_000)}"
        worker.do(Done("bash", {"command": f"systemctl status {service}"}, status))


def debug(worker: Worker) -> None:
    """Run experiments that fail in different ways, with occasional fixes."""
    chance, project = worker.chance, worker.project
    for _ in range(chance.randint(6, 24)):
        roll = chance.random()
        if roll < 0.55:
            error = chance.choice(("KeyError", "TypeError", "ValueError", "AssertionError"))
            trace = f'File "{chance.choice(project.files)}", line {chance.randint(1, 300)}\n{error}: {project.word()}'
            command = f"python -c 'import {project.word()}; {project.word()}({chance.randint(0, 9)})'"
            worker.do(Done("bash", {"command": command}, trace, False))
        elif roll < 0.7:
            worker.do(worker.edit())
        else:
            worker.do(worker.read())


def write(worker: Worker) -> None:
    """Write long documents without tests."""
    chance, project = worker.chance, worker.project
    for _ in range(chance.randint(4, 14)):
        path = f"docs/{project.word()}.md"
        text = f"# {project.prose(3)}\n\n{project.prose(chance.randint(40, 160))}"
        if chance.random() < 0.08:
            text += "\nTODO: a picture"
        worker.do(Done("write", {"file_path": path, "content": text}, f"Wrote {path}", files=project.changed(path)))


KINDS: dict[str, Callable[[Worker], None]] = {
    "tests": tdd,
    "refactoring": refactor,
    "exploring": explore,
    "polling": poll,
    "waiting": watch,
    "backoff": retry,
    "long build": long_build,
    "data": data,
    "operating": operate,
    "debugging": debug,
    "writing": write,
}
"""Kinds of healthy work."""


def segments(chance: random.Random, leading: str) -> Iterator[Callable[[Worker], None]]:
    """Return kinds of work in order, half of them the leading kind."""
    while True:
        yield KINDS[leading] if chance.random() < 0.5 else KINDS[chance.choice(list(KINDS))]


def start(seed: int, leading: str) -> tuple[Worker, Iterator[Callable[[Worker], None]]]:
    """Return a worker and its kinds of work."""
    chance = random.Random(f"{leading}:{seed}")
    teller = Teller(chance, chance.choice(("compaction", "compaction", "reset")))
    worker = Worker(teller, Project(chance), held_out=seed >= HELD_OUT)
    return worker, segments(chance, leading)


def healthy(seed: int, leading: str, turns: int = 120) -> Tale:
    """Return a healthy session of at least that many turns."""
    worker, work = start(seed, leading)
    while len(worker.teller.turns) < turns:
        worker.mood = worker.chance.uniform(0.55, 1.5)
        next(work)(worker)
        if worker.chance.random() < 0.08:
            worker.teller.hear(worker.project.prose(8))
    worker.mood = 1.0
    if worker.chance.random() < 0.8:
        worker.do(worker.test())
    summary = worker.project.prose(worker.chance.randint(10, 90))
    worker.teller.tell(Say(f"Done: {summary}. Everything that was asked for is there."))
    return Tale(f"healthy: {leading}", seed, tuple(worker.teller.turns))

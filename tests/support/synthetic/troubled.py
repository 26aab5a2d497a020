"""Synthetic troubled workers: anxious ones, and five kinds of loops in many forms.

Each begins as a healthy worker and goes wrong at a random turn. The onset of a loop is the turn that completes its
second round, since no detector can know it earlier. The onset of anxiety is the first anxious turn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tests.support.synthetic.events import Done, Say, Tale, Teller
from tests.support.synthetic.healthy import Worker, start

LOOP_TURNS = 24
"""Turns that a loop lasts."""

# --- anxiety -------------------------------------------------------------------------------------

_SAID = (
    "Given how little context remains, I will only do the main case.",
    "I am running low on context, so I keep the remaining edits minimal.",
    "To conserve context I will not read the file again.",
    "My context window is almost full, so I finish the essentials.",
    "Since tokens are limited I cover the happy path.",
    "I'll leave the rest for a follow-up.",
    "The remaining tasks can be done in another session.",
    "The other modules can be migrated later on.",
    "Let me wrap things up.",
    "This is a good place to stop.",
    "I think that is enough for now.",
    "In the interest of time I do only the first half.",
    "For brevity I leave out the error handling.",
    "Let me quickly finish this.",
    "I will skip the tests for this part.",
    "This should work.",
    "I'll assume the tests pass.",
    "There is no need to run everything once more.",
    "Here is a simplified version for the moment.",
    "I will stop here and summarise.",
    "We are near the end of what I can hold, so let me be done.",
    "I'd better finish soon.",
    "Best to close this out now.",
    "The details are straightforward and left to the reader.",
)

# Used only by workers with seeds from HELD_OUT on: no threshold or pattern was chosen with these.
_SAID_HELD_OUT = (
    "With the context left I can only outline the others.",
    "My remaining context does not allow the full change.",
    "I have to be economical with tokens now.",
    "Let's leave the rest to whoever picks this up.",
    "Further modules are left as an exercise for a next session.",
    "That will have to do.",
    "I'll stop at this point.",
    "Keeping it short: only the first case is done.",
    "I am skipping verification here.",
    "It looks right, so I do not run it.",
    "I'll finalize quickly.",
)


class Nerves:
    """Symptoms of an anxious worker: at least two of five."""

    def __init__(self, chance: random.Random, together: int) -> None:
        possible = ["short", "unchecked", "says", "stubs"]
        if together > 1:  # a worker with one call at a time cannot make fewer
            possible.append("avoids")
        ways = chance.sample(possible, min(len(possible), chance.choice((2, 3, 3, 4, 5))))
        if not {"short", "says", "unchecked"} & set(ways):
            ways.append("says")
        self.short = chance.uniform(0.1, 0.4) if "short" in ways else 1.0
        self.avoids = "avoids" in ways
        self.unchecked = "unchecked" in ways
        self.says = chance.uniform(0.35, 0.8) if "says" in ways else 0.12
        self.stubs = chance.uniform(0.2, 0.5) if "stubs" in ways else 0.0
        self.gives_up = chance.uniform(0.05, 0.25)


def anxious(seed: int, fill: float) -> Tale:
    """Return a worker that works properly until its context is filled beyond `fill`, then rushes to finish."""
    chance = random.Random(f"anxious:{fill}:{seed}")
    worker, work = start(seed, chance.choice(("tests", "refactoring", "operating", "writing", "tests")))
    teller = worker.teller
    contexts = chance.choice((0, 0, 1))  # compacted or reset before
    while (cut := _crossing(teller, fill, contexts)) < 0:
        worker.mood = chance.uniform(0.75, 1.3)
        next(work)(worker)
    del teller.turns[cut + 1 :]
    teller.fill = teller.turns[-1].fill
    worker.mood = 1.0
    nerves = Nerves(chance, worker.together)
    onset = len(teller.turns)
    sayings = _SAID + _SAID_HELD_OUT if worker.held_out else _SAID
    for turn in range(LOOP_TURNS):
        says = chance.choice(sayings) if chance.random() < nerves.says else ""
        if turn > 2 and chance.random() < nerves.gives_up:
            teller.tell(Say(says or chance.choice(_SAID[5:11])), bad=True)
            break
        _nervous_turn(worker, nerves, says)
    return Tale(f"anxious:{fill}", seed, tuple(teller.turns), onset)


def _crossing(teller: Teller, fill: float, contexts: int) -> int:
    """Return the first turn with a context that full, after that many full contexts; -1 without one."""
    below = True
    for index, told in enumerate(teller.turns):
        if below and told.fill > fill:
            if not contexts:
                return index
            contexts -= 1
        below = told.fill <= fill
    return -1


def _nervous_turn(worker: Worker, nerves: Nerves, says: str) -> None:
    chance = worker.chance
    path = chance.choice(worker.project.files)
    stub = "\n# TODO: the other cases" if chance.random() < nerves.stubs else ""
    value = {"file_path": path, "old_string": worker.project.word(), "new_string": worker.project.word() + stub}
    calls = [Done("edit", value, f"Edited {path}", files=worker.project.changed(path))]
    if not nerves.avoids:
        calls += [worker.read() for _ in range(worker.together - 1)]
    if not nerves.unchecked and chance.random() < 1 / worker.test_every:
        calls = [worker.test()]
    plain = worker.say(*calls)
    words = plain.text[: int(len(plain.text) * nerves.short)]
    thinking = plain.thinking[: int(len(plain.thinking) * nerves.short)]
    worker.teller.tell(Say(f"{words} {says}".strip(), tuple(calls), thinking), bad=True)


# --- loops ---------------------------------------------------------------------------------------


class Noise:
    """Irrelevant differences between outputs: times, durations, process numbers, and temporary names."""

    def __init__(self, worker: Worker) -> None:
        self.worker, self.chance = worker, worker.chance
        self.form = self.chance.choice(("none", "clock", "took", "pid", "date", "several"))

    def on(self, text: str) -> str:
        """Add the noise to a text."""
        clock = self.worker.project.now()
        took = f"{self.chance.uniform(0.01, 9):.2f}s"
        pid = self.chance.randint(300, 32_000)
        match self.form:
            case "clock":
                return f"{clock} {text}"
            case "took":
                return f"{text}\nfinished in {took}"
            case "pid":
                return f"{text}\n(process {pid})"
            case "date":
                return f"2026-03-{self.chance.randint(1, 28):02d} {clock},{self.chance.randint(0, 999)} INFO {text}"
            case "several":
                return f"[{pid}] {clock} {text}\nreal 0m{took}\nid {self.chance.getrandbits(40):x}"
            case _:
                return text


Loop = Iterator[Done]


def same_call(worker: Worker) -> tuple[Loop, int]:
    """Repeat one call."""
    chance, project, noise = worker.chance, worker.project, Noise(worker)
    form = chance.choice(("tests", "script", "read", "grep", "edit", "tool", "status"))
    path, word, text = chance.choice(project.files), project.word(), project.prose(30).replace(" ", "\n", 4)
    body = project.body(path)

    def once() -> Done:
        match form:
            case "tests":
                failing = f"FAILED {project.tests[0]} - KeyError\n{text}\n1 failed"
                return Done("bash", {"command": project.test_command}, noise.on(failing), False, {}, 30_000.0)
            case "script":
                return Done("bash", {"command": f"cd work && ./{word}.sh && echo ok"}, noise.on(text))
            case "read":
                return Done("read", {"file_path": path, "view_range": [1, 40]}, body, files=project.digest(path))
            case "grep":
                return Done("grep", {"pattern": word}, "")
            case "edit":
                value = {"file_path": path, "old_string": word, "new_string": word + "x"}
                return Done("edit", value, f"old_string does not occur in {path}", False)
            case "tool":
                return Done(f"lookup_{word}", {"key": word}, noise.on(f"no entry for {word}, try again"))
            case _:
                return Done("bash", {"command": "git status"}, noise.on("nothing to commit, working tree clean"))

    return iter(once, None), 1


def ping_pong(worker: Worker) -> tuple[Loop, int]:
    """Alternate two actions, each undoing or requiring the other."""
    chance, project, noise = worker.chance, worker.project, Noise(worker)
    path, other = chance.sample(project.files, 2)
    one, two = project.word(), project.word()
    form = chance.choice(("toggle", "files", "revert", "check"))
    text = project.prose(20)

    def pairs() -> Loop:
        while True:
            if form == "toggle":
                value = {"file_path": path, "old_string": one, "new_string": two}
                yield Done("edit", value, f"Edited {path}", files={path: f"{path}={two}"})
                value = {"file_path": path, "old_string": two, "new_string": one}
                yield Done("edit", value, f"Edited {path}", files={path: f"{path}={one}"})
            elif form == "files":
                yield Done("read", {"file_path": path}, project.body(path), files=project.digest(path))
                yield Done("read", {"file_path": other}, project.body(other), files=project.digest(other))
            elif form == "revert":
                yield Done("bash", {"command": f"git apply {one}.patch"}, noise.on("applied"))
                yield Done("bash", {"command": f"git checkout {path}"}, noise.on("Updated 1 path from the index"))
            else:
                yield Done("bash", {"command": project.test_command}, noise.on(f"1 failed\n{text}"), False)
                yield Done("bash", {"command": f"git diff {path}"}, f"- {one}\n+ {two}\n{text}")

    return pairs(), 2


_WAYS: dict[str, tuple[str, ...]] = {
    "view": ("cat {0}", "head -n 200 {0}", "sed -n '1,200p' {0}", "less {0} | cat", "cat ./{0}", "tail -n +1 {0}",
             "awk '{{print}}' {0}", "bat -p {0}", "nl {0}", "python3 -c \"print(open('{0}').read())\""),
    "search": ("grep -rn {1} src", "grep -R {1} src/", "rg {1} src", "grep -rn '{1}' ./src", "rg -n {1} src/",
               "find src -type f | xargs grep {1}", "git grep {1} -- src", "grep -rni {1} src", "ag {1} src"),
    "serve": ("curl localhost:8080/{1}", "curl -s http://localhost:8080/{1}", "curl -i localhost:8080/{1}",
              "curl -v http://localhost:8080/{1} 2>&1", "curl -sS localhost:8080/{1}", "curl -L localhost:8080/{1}"),
    "run": ("python {0}", "python3 {0}", "python ./{0}", "cd . && python {0}", "env python3 {0}", "python -u {0}",
            "python {0} 2>&1", "python {0}; echo", "python -B {0}"),
    "list": ("ls {1}/", "ls -1 {1}", "ls {1} | cat", "find {1} -maxdepth 1", "ls -l {1}/", "ls -a {1}", "ls -la {1}"),
}  # fmt: skip


def paraphrase(worker: Worker) -> tuple[Loop, int]:
    """Repeat an action in other words, with the same effect."""
    chance, project, noise = worker.chance, worker.project, Noise(worker)
    form = chance.choice((*_WAYS, "mend", "write"))
    path, word = chance.choice(project.files), project.word()
    text = "\n".join(project.prose(6) for _ in range(chance.randint(3, 12)))
    failed = chance.random() < 0.5

    def ways() -> Loop:
        last = ""
        while True:
            if form == "mend":
                old = f"{word}({chance.choice(('', ' '))}{project.word()}){chance.choice(('', ':', ' :'))}"
                value = {"file_path": path, "old_string": old, "new_string": project.word()}
                yield Done("edit", value, f"old_string does not occur in {path}; read the file again", False)
            elif form == "write":
                value = {"file_path": path, "content": f"{text}{chance.choice(('', ' ', chr(10)))}"}
                yield Done("write", value, f"Wrote {path}", files={path: f"{path}={word}"})
            else:
                last = chance.choice([way for way in _WAYS[form] if way != last])
                said = {"view": project.body(path), "search": "" if failed else text}.get(form, noise.on(text))
                good = form in ("view", "list") or not failed
                yield Done("bash", {"command": last.format(path, word)}, said, good)

    return ways(), 1


def growing(worker: Worker) -> tuple[Loop, int]:
    """Repeat a command whose output is the same lines, more of them each time."""
    chance, project = worker.chance, worker.project
    what = project.prose(4)
    form = chance.choice(("log", "retries", "appended", "warnings"))
    command = {
        "log": f"cat logs/{project.word()}.log",
        "retries": f"./{project.word()} --resume",
        "appended": f"./append.sh {project.word()} && cat out.txt",
        "warnings": f"make {project.word()} 2>&1",
    }[form]

    def more() -> Loop:
        lines: list[str] = []
        while True:
            for _ in range(chance.randint(1, 6)):
                lines.append(
                    {
                        "log": f"2026-03-01 {project.now()} ERROR {what}",
                        "retries": f"attempt {len(lines) + 1} failed: {what}",
                        "appended": what,
                        "warnings": f"warning: {what}",
                    }[form]
                )
            yield Done(
                "bash", {"command": command}, "\n".join(("start", *lines)), chance.random() < 0.9 or form == "log"
            )

    return more(), 1


def errors(worker: Worker) -> tuple[Loop, int]:
    """Repeat calls that all fail, each with its own error, in order or shuffled."""
    chance, project, noise = worker.chance, worker.project, Noise(worker)
    count = chance.randint(2, 4)
    path = chance.choice(project.files)
    word = project.word()
    all_calls = [
        lambda: Done("bash", {"command": "npm install"}, noise.on("npm ERR! ENOTFOUND registry"), False),
        lambda: Done("bash", {"command": f"python {path}"}, noise.on(f"ModuleNotFoundError: {word}"), False),
        lambda: Done("bash", {"command": f"pip install {word}"}, noise.on(f"No matching distribution {word}"), False),
        lambda: Done("read", {"file_path": f"{word}.toml"}, f"there is no file {word}.toml", False),
        lambda: Done("edit", {"file_path": path, "old_string": word, "new_string": "x"}, "does not occur", False),
        lambda: Done("bash", {"command": f"docker build -t {word} ."}, noise.on("Cannot connect to the daemon"), False),
        lambda: Done("bash", {"command": f"make {word}"}, noise.on(f"No rule to make target {word}. Stop."), False),
    ]
    chosen: list[Callable[[], Done]] = chance.sample(all_calls, count)
    shuffled = chance.random() < 0.4

    def rounds() -> Loop:
        while True:
            if shuffled:
                chance.shuffle(chosen)
            for call in chosen:
                yield call()

    return rounds(), count


LOOPS: dict[str, Callable[[Worker], tuple[Loop, int]]] = {
    "same call": same_call,
    "ping-pong": ping_pong,
    "paraphrase": paraphrase,
    "growing output": growing,
    "error cycle": errors,
}


def looping(seed: int, kind: str) -> Tale:
    """Return a healthy session in which a loop of that kind begins and never ends."""
    chance = random.Random(f"{kind}:{seed}")
    worker, work = start(seed, chance.choice(("tests", "refactoring", "exploring", "debugging", "operating")))
    teller: Teller = worker.teller
    before = chance.randint(3, 90)
    while len(teller.turns) < before:
        worker.mood = chance.uniform(0.55, 1.5)
        next(work)(worker)
    loop, period = LOOPS[kind](worker)
    between = chance.choice((0.0, 0.0, 0.1, 0.2, 0.3))
    rounds = 0
    onset = -1
    for _ in range(LOOP_TURNS):
        if rounds and chance.random() < between:  # a harmless call in between
            harmless = (worker.read(), worker.grep(), worker.look())
            teller.tell(worker.say(chance.choice(harmless)), bad=True)
            continue
        teller.tell(worker.say(next(loop)), bad=True)
        rounds += 1
        if rounds == 2 * period:
            onset = len(teller.turns) - 1
    return Tale(f"loop: {kind}", seed, tuple(teller.turns), onset)

"""`mission.toml` of a repository: the settings of its missions and their sessions.

goal = "A list of things to do on the command line."
contract = "feature_list.json"
judge = "per_task"
workers = 4
task_budget_usd = 2.5

[models]
judge = "anthropic:NAME"

The repository may be untrusted: keys reserved for the user's own holdfast.toml are refused here too, holdfast.toml and
flags override this file, and only harmless keys count until the user has accepted the file (docs/trust.md).
docs/missions.md lists each key.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePosixPath
from typing import Any, get_args

import msgspec

from holdfast.app.settings.config import Settings, check_shared, parse_toml, trust_store
from holdfast.app.settings.policies import read_environment, read_hands
from holdfast.app.settings.project import MISSION_FILE, Change, changes, flat, has_hooks, keep, read_mission
from holdfast.app.settings.tables import NAME, Key, at_least, money, one_of, or_none, read_table, text, texts, yes_or_no
from holdfast.app.settings.trust import Ignored, SettingsFile
from holdfast.app.settings.values import count, known_key, nearest
from holdfast.errors import UsageError
from holdfast.facts.mission import Contract, MissionPolicy, RoleKind
from holdfast.kinds.mission.contract.protected import DEFAULT_PROTECTED

ROLES: tuple[str, ...] = get_args(RoleKind)

WORKERS_MAX = 64

TASK_TOKENS_LEAST = 1_000

DEFAULT_CONTRACT = "feature_list.json"
"""The default contract file; naming it has no effect."""


@dataclass(frozen=True)
class MissionFile:
    """The content of a mission.toml. `contract` is a path in the repository, `follow` the full name of a ref.

    `protected` are globs added to the default ones; `unprotected` are default ones that are removed.
    `hidden` are globs of files that workers, planners and judges do not see.
    `hands` and `environment` are tables as they stand in holdfast.toml. `ignored` are keys that do not count, since the
    user has not accepted the file.
    """

    goal: str = ""
    name: str = ""
    contract: str = ""
    follow: str = ""
    model: str = ""
    budget_usd: str = ""
    protected: tuple[str, ...] = ()
    unprotected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    policy: MissionPolicy = field(default_factory=MissionPolicy)
    hands: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    ignored: tuple[Ignored, ...] = ()

    def settings(self, settings: Settings) -> Settings:
        """The settings of the mission's sessions: this file fills in what holdfast.toml and flags leave unset."""
        return replace(
            settings,
            model=settings.model or self.model,
            budget_usd=settings.budget_usd or self.budget_usd,
            hands={**self.hands, **settings.hands},
            environment={**self.environment, **settings.environment},
            ignored=(*settings.ignored, *self.ignored),
        )

    def applied(self, contract: Contract) -> Contract:
        """The contract with this file's goal and protected files. Raises `UsageError` for a futile `unprotected`."""
        for glob in self.unprotected:
            if glob not in contract.protected:
                raise UsageError(
                    f"unprotected in {MISSION_FILE} names {glob!r}, which is not protected anyway; "
                    f"{nearest(glob, contract.protected)}"
                )
        kept = (glob for glob in (*contract.protected, *self.protected) if glob not in self.unprotected)
        return msgspec.structs.replace(
            contract, goal=self.goal or contract.goal, protected=tuple(dict.fromkeys(kept)), hidden=self.hidden
        )


def read_mission_file(path: Path) -> MissionFile:
    """Read the mission.toml that the user named. Raises `UsageError` with the invalid key, or for a missing file."""
    if not path.is_file():
        raise UsageError(f"there is no mission file {path}; leave it out, or name one that is there")
    try:
        return parse_mission_file(path.read_bytes(), path)
    except OSError as error:
        raise UsageError(f"the mission file {path} cannot be read: {error.strerror}") from error


def project_mission(folder: Path, settings: Settings) -> MissionFile:
    """The trusted part of a repository's mission.toml and hooks, with defaults for the rest."""
    file = read_mission(folder.resolve() / MISSION_FILE)
    if file is None:
        return MissionFile()
    values = mission_values(file)
    if trust_store().accepts(file):
        return _mission_of(values, file.path)
    found = mission_changes(file, values, settings)
    refused = tuple(each.key for each in found if each.danger or file.problem)
    counts = frozenset(key for key, _ in flat(values)) - {*refused} if not file.problem else frozenset()
    mission = _mission_of(keep(values, counts), file.path)
    policy = (
        msgspec.structs.replace(mission.policy, hooks=False) if "hooks" in refused or file.problem else mission.policy
    )
    ignored = (Ignored(str(file.path), refused, file.problem),) if refused or file.problem else ()
    return replace(mission, policy=policy, ignored=ignored)


def mission_values(file: SettingsFile) -> dict[str, Any]:
    """The checked values of a repository's mission.toml. Raises `UsageError` unless the file is ignored anyway."""
    try:
        values = parse_toml(file.data, file.path, "the mission file")
        _mission_of(values, file.path)
    except UsageError:
        if file.problem:
            return {}
        raise
    return values


def mission_changes(file: SettingsFile, values: dict[str, Any], settings: Settings) -> list[Change]:
    """The change that each key would make. Hooks of the repository count as a key even without mission.toml."""
    shown = {**values, "hooks": values["hooks"] if "hooks" in values else True}
    if not has_hooks(file.named):
        shown.pop("hooks")
    given = {name: getattr(settings, name) for name in ("model", "budget_usd") if getattr(settings, name)}
    user_set = frozenset([*given, *(key for key, _ in flat({name: getattr(settings, name) for name in _TABLES}))])
    before = {**vars(settings), "hooks": False, "contract": DEFAULT_CONTRACT}
    return changes(shown, before, user_set)


def parse_mission_file(data: bytes, path: Path) -> MissionFile:
    """Parse the bytes of a mission.toml completely; `path` is for error messages."""
    return _mission_of(parse_toml(data, path, "the mission file"), path)


def _mission_of(values: dict[str, Any], path: Path) -> MissionFile:
    where = str(path)
    _check_own(path, values)
    for name in values:
        known_key(name, _ALL, where)
    own = {name: value for name, value in values.items() if name in _OWN}
    policy = {name: value for name, value in values.items() if name in _POLICY}
    hands, environment = (_table(name, values.get(name, {}), where) for name in _TABLES)
    read_hands(hands, f"[hands] of {where}")
    read_environment(environment, f"[environment] of {where}")
    return replace(
        MissionFile(**read_table(where, own, _OWN)),
        hands=hands,
        environment=environment,
        policy=msgspec.structs.replace(MissionPolicy(), **read_table(where, policy, _POLICY)),
    )


def _check_own(path: Path, values: dict[str, Any]) -> None:
    """Refuse keys that a repository may not set; the model of a role counts as the model of all."""
    check_shared(path, values)
    models = values.get("models")
    for model in models.values() if isinstance(models, dict) else ():
        check_shared(path, {"model": model})


def _table(name: str, value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{name} in {where} has to be a table, such as [{name}]")
    return value


# --- keys ------------------------------------------------------------------------------------------


def _name(value: Any) -> str:
    if not isinstance(value, str) or NAME.fullmatch(value) is None:
        raise ValueError(f'{value!r} has to be letters, digits, - and _, up to 32, such as "todo-list"')
    return value


def _inside(value: Any) -> str:
    """A path below the repository."""
    path = text("feature_list.json")(value)
    parts = PurePosixPath(path).parts
    if path.startswith(("/", "~")) or ".." in parts or ".git" in parts or not parts:
        raise ValueError(f'{value!r} has to be a path inside the repository, such as "feature_list.json"')
    return str(PurePosixPath(path))


def _ref(value: Any) -> str:
    """A branch name, or the full name of a ref."""
    name: str = text("main")(value)
    bad = any(char in " ~^:?*[\\" or not char.isprintable() for char in name)
    if bad or name.startswith(("-", "/")) or name.endswith(("/", ".lock", ".")) or ".." in name or "@{" in name:
        raise ValueError(f'{value!r} is no name of a branch, such as "main"')
    return name if name.startswith("refs/") else f"refs/heads/{name}"


def _goal(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise ValueError(f'{value!r} has to be text, such as "A list of things to do"')
    return value.strip()


def _usd(value: Any) -> str:
    money(value)
    return str(value)


def _workers(value: Any) -> int:
    number = count(value)
    if number > WORKERS_MAX:
        raise ValueError(f"{value!r} is more than {WORKERS_MAX} at a time")
    return number


def _tokens(value: Any) -> int:
    number = count(value)
    if number < TASK_TOKENS_LEAST:
        raise ValueError(f"{value!r} is too little for any task: at least {TASK_TOKENS_LEAST}")
    return number


def _by_role(read: Any, example: str) -> Any:
    def read_all(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ValueError(f"{value!r} has to be a table by role, such as {example}")
        found = {}
        for role, each in value.items():
            if role not in ROLES:
                raise ValueError(f"there is no role {role!r}; {nearest(role, ROLES)}")
            found[role] = read(each)
        return found

    return read_all


_OWN = {
    "goal": Key(_goal),
    "name": Key(_name),
    "contract": Key(_inside),
    "follow": Key(_ref),
    "model": Key(text("anthropic:NAME")),
    "budget_usd": Key(_usd),
    "protected": Key(texts('["data/golden/**"]')),
    "hidden": Key(texts('["tests/hidden/**"]')),
    "unprotected": Key(texts(f'["{DEFAULT_PROTECTED[0]}"]')),
}

_TABLES = ("hands", "environment")

_POLICY = {
    "planner": Key(one_of("model", "items")),
    "judge": Key(one_of("per_task", "at_end", "off")),
    "gate": Key(one_of("each", "batch", "green_branch")),
    "context": Key(one_of("auto", "compaction", "reset", "hybrid", "off")),
    "workers": Key(_workers),
    "max_iterations": Key(count),
    "max_attempts": Key(count),
    "max_replans": Key(at_least(0)),
    "judge_tries": Key(count),
    "batch": Key(count),
    "flake_reruns": Key(at_least(0)),
    "confirm_runs": Key(count),
    "plateau": Key(count),
    "scope": Key(one_of("refuse", "list")),
    "dependencies": Key(one_of("refuse", "list")),
    "lessons": Key(one_of("ask", "apply", "off")),
    "lesson_lines": Key(at_least(0)),
    "task_tokens": Key(_tokens),
    "task_budget_usd": Key(or_none(money), "task_budget_pico"),
    "models": Key(_by_role(text("anthropic:NAME"), 'judge = "anthropic:NAME"')),
    "turns": Key(_by_role(count, "worker = 200")),
    "hooks": Key(yes_or_no),
    "checks": Key(texts('["ruff check ."]')),
    "edit_checks": Key(texts('["ruff format --check ."]')),
    "documents": Key(yes_or_no),
}

_ALL = (*_OWN, *_TABLES, *_POLICY)

POLICY_KEYS = {key.field or name: name for name, key in _POLICY.items()}
"""Field of `MissionPolicy` → the key that sets it."""

OWN_KEYS = tuple(each.name for each in fields(MissionFile) if each.name not in ("policy", "ignored"))
"""Keys of mission.toml beside those of its policy."""

"""The oracle's answers as a file, so that any process can wake a session that works with it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.clock import Clock
from holdfast.errors import UsageError
from holdfast.model.base import Model
from holdfast.proof.oracle.mission import MissionOracle
from holdfast.proof.oracle.mission_answers import MissionAnswers
from holdfast.proof.oracle.session import OracleModel
from holdfast.proof.rebuild.strip import Manifest


class Answers(msgspec.Struct, frozen=True, tag="library", tag_field="kind"):
    """What an oracle knows: the true bodies, how tests are run, and its pause between pieces."""

    manifest: Manifest
    suite_command: str
    quick_command: str
    delta_s: float = 0.0


def save_answers(path: Path, answers: Answers) -> None:
    """Write them to a file that the agent cannot reach."""
    path.write_bytes(msgspec.json.encode(answers))


def load_oracle(path: Path, clock: Clock) -> Model:
    """The oracle of `--model oracle:FILE`, for a library or a mission. Raises `UsageError` for a file of neither."""
    try:
        answers = msgspec.json.decode(path.read_bytes(), type=Answers | MissionAnswers)
    except OSError as error:
        raise UsageError(f"the oracle's answers {path} cannot be read: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise UsageError(f"{path} holds no oracle's answers: {error}; `holdfast demo` makes such files") from error
    if isinstance(answers, MissionAnswers):
        return MissionOracle(answers, clock, path.with_suffix(".asked"))
    return OracleModel(
        answers.manifest,
        answers.suite_command,
        clock,
        quick_command=answers.quick_command,
        delta_s=answers.delta_s,
    )

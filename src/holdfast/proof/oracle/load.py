"""Loader of the oracle of `--model oracle:FILE`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from holdfast.clock import Clock
from holdfast.errors import UsageError
from holdfast.model.base import Model
from holdfast.proof.oracle.answers import Answers, MissionAnswers
from holdfast.proof.oracle.mission import MissionOracle
from holdfast.proof.oracle.session import OracleModel


def load_oracle(path: Path, clock: Clock) -> Model:
    """Load the oracle of `--model oracle:FILE`, for a library or a mission. Raises `UsageError` for any other file."""
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

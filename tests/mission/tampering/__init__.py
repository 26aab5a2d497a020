"""All tampers that the ratchet is tested with: those of the product and many more of the same classes."""

from __future__ import annotations

from holdfast.proof.tampers import TAMPERS, Edits, Files, by_name
from tests.mission.tampering import in_product, in_surroundings, in_tests

ALL = {**TAMPERS, **by_name(in_tests.MAKES), **by_name(in_surroundings.MAKES), **by_name(in_product.MAKES)}


def applied(files: Files, edits: Edits) -> tuple[dict[str, bytes], dict[str, str]]:
    """The regular files after some edits, and the new modes of the edited paths; links are not files."""
    after = dict(files)
    for path, edit in edits.items():
        if edit.content is None or edit.mode == "120000":
            after.pop(path, None)
        else:
            after[path] = edit.content
    return after, {path: "" if edit.content is None else edit.mode for path, edit in edits.items()}

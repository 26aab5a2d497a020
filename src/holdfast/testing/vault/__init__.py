"""The conformance kit of the vault: what every keeper of references must show.

`CHECKS` maps a name to a function of a fresh `Rig`. Run each on your implementation, as the tests do with
`holdfast.vault.reference_vault` and `holdfast.vault.fake`:

    @pytest.mark.parametrize("name", CHECKS)
    def test_my_vault(name):
        CHECKS[name](my_rig())

Nothing here imports a test runner; a check fails with `AssertionError`.
"""

from __future__ import annotations

from holdfast.testing.vault import secrets
from holdfast.testing.vault.rig import Check, Rig

CHECKS: dict[str, Check] = {f"secrets.{check.__name__}": check for check in secrets.CHECKS}
"""Name → check, for example `secrets.a_rotated_value_counts_at_once`."""

__all__ = ["CHECKS", "Check", "Rig"]

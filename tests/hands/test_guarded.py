"""Files of a workspace that hands show read-only: they can be neither changed nor moved nor removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.hands.host_files import guarded
from holdfast.hands.oci import engines
from holdfast.hands.oci.provider import OciProvider
from holdfast.testing.hands import bash, run, tool
from tests.hands.rigs import LIVES, REAL, Made, RealRig, real

NAMES = ("tests/test_a.py", "feature_list.json", "gone.py", "link.py", "far/x.py")

TRY = """
mv tests elsewhere
echo pass > tests/test_a.py; rm -f tests/test_a.py; mv tests/test_a.py tests/old.py; rm -rf tests
echo '[]' > feature_list.json; sed -i s/x/y/ feature_list.json; ln -sf /dev/null feature_list.json
chmod 777 feature_list.json; echo new > tests/test_b.py; echo code > src.py
"""


def _runc() -> Made:
    return lambda folder: OciProvider(folder, "runc", lives=LIVES)


def _absent() -> str:
    return engines.complaint(engines.named("runc"))


def fill(rig: RealRig) -> None:
    """A workspace as a worker has it."""
    (rig.workspace / "tests").mkdir()
    (rig.workspace / "tests" / "test_a.py").write_text("assert True\n")
    (rig.workspace / "feature_list.json").write_text("[x]\n")
    (rig.workspace / "real").mkdir()
    (rig.workspace / "real" / "x.py").write_text("x")
    (rig.workspace / "far").symlink_to("real")
    (rig.workspace / "link.py").symlink_to("/etc/passwd")


@pytest.mark.parametrize("provider", ["bubblewrap", "runc"])
async def test_guarded_files_stay_and_others_beside_them_may_be_made(tmp_path: Path, provider: str) -> None:
    if provider == "runc" and (problem := _absent()):
        pytest.skip(problem)
    made = _runc() if provider == "runc" else REAL[provider]
    async with real(tmp_path, made) as rig:
        fill(rig)
        hands = await rig.provider.provision(rig.spec(guarded=NAMES), 1)
        said = await run(hands, "1.0", bash(TRY))
        assert "Read-only file system" in said.output
        assert "busy" in said.output
        written = await run(hands, "1.1", tool("write", file_path="feature_list.json", content="[]"))
        assert not written.ok
        await hands.release(1)
        assert not (rig.workspace / "elsewhere").exists()
        assert (rig.workspace / "tests" / "test_a.py").read_text() == "assert True\n"
        assert (rig.workspace / "feature_list.json").read_text() == "[x]\n"
        assert (rig.workspace / "tests" / "test_b.py").read_text() == "new\n"
        assert (rig.workspace / "src.py").read_text() == "code\n"


def test_what_is_not_there_or_is_elsewhere_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    (tmp_path / "link.py").symlink_to("/etc/passwd")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "x.py").write_text("x")
    (tmp_path / "far").symlink_to("real")
    shown = guarded(tmp_path, ("a.py", *NAMES, "../x", "real/x.py"))
    assert shown == {"real": True, "a.py": False, "real/x.py": False}, "a folder above cannot be moved away"


async def test_as_many_files_as_are_guarded_at_most_are_no_burden(tmp_path: Path) -> None:
    async with real(tmp_path, REAL["bubblewrap"]) as rig:
        names = [f"tests/test_{number}.py" for number in range(300)]
        (rig.workspace / "tests").mkdir()
        for name in names:
            (rig.workspace / name).write_text("x")
        hands = await rig.provider.provision(rig.spec(guarded=tuple(names)), 1)
        said = await run(hands, "1.0", bash("rm -f tests/*; ls tests | wc -l"))
        assert said.output.strip().endswith("300")
        await hands.release(1)

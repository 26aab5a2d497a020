"""Commands in a real sandbox that try to change files which make programs of the host run code."""

from __future__ import annotations

from pathlib import Path

from holdfast.testing.hands import bash, run
from tests.hands.rigs import bubblewrap, real

STANDING = {
    "holdfast.toml": "holdfast.toml",
    "nested settings": "a/b/holdfast.toml",
    ".envrc": "deep/er/.envrc",
    "editor": ".vscode/tasks.json",
    "agent tools": "sub/.mcp.json",
    "agent settings": ".claude/settings.json",
    "hooks": ".husky/pre-commit",
    "nested repository": "vendor/lib/.git/config",
    "another case": "x/.GIT/config",
    "bare repository": "store/config",
}
"""Files that people had in their workspace; all of them have content `kept`."""

SPOILS = (
    "echo spoilt > {0}",
    "rm -rf {0}",
    "mv {0} {0}.old",
    "sed -i s/kept/spoilt/ {0}",
    "ln -sf /etc/passwd {0}",
    "chmod 777 {0}",
)


def stand(root: Path) -> None:
    """Put all of them there."""
    for path in STANDING.values():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("kept")
    (root / "store" / "HEAD").write_text("kept")
    for name in ("objects", "refs"):
        (root / "store" / name).mkdir()


async def spoilt(base: Path) -> dict[str, str]:
    """What commands in a real sandbox made of them: only what changed."""
    async with real(base, bubblewrap) as rig:
        stand(rig.workspace)
        hands = await rig.provider.provision(rig.spec(), 1)
        for number, path in enumerate(STANDING.values()):
            words = "; ".join(spoil.format(path) for spoil in SPOILS)
            await run(hands, f"c{number}", bash(f"({words}) 2>/dev/null; echo {path}; true"))
        assert (await run(hands, "free", bash("echo ok > a/free && cat a/free"))).output == "ok\n"
        await hands.release(1)
        there = {name: rig.workspace / path for name, path in STANDING.items()}
        return {n: repr(p.read_text()) if p.is_file() else "gone" for n, p in there.items() if not same(p)}


def same(path: Path) -> bool:
    """Whether it is as it stood."""
    return not path.is_symlink() and path.is_file() and path.read_text() == "kept" and path.stat().st_mode & 2 == 0

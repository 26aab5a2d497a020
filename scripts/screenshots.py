"""Write a picture of every screen of Mission Control, in both themes and at two widths.

    python scripts/screenshots.py [--to DIR] [--only NAME]

Needs a browser (`apt install chromium`). It serves a home that it makes, and prints each file's name.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from tests.support.web_home import populate, web_home  # noqa: E402

SCREENS = {
    "inbox": "/",
    "item": "/inbox/itm_0001",
    "long-item": "/inbox/itm_0002",
    "question": "/inbox/itm_0003",
    "session": "/sessions/ses_flakytests",
    "scrubbed": "/sessions/ses_flakytests?at=60",
    "event": "/sessions/ses_flakytests/events/40",
    "fleet": "/fleet",
    "filtered": "/fleet?q=is:parked+spend:%3E1",
    "search": "/search?q=orders",
    "mission": "/missions/ses_top",
    "missions": "/missions",
    "items": "/items/ses_reviews",
    "duties": "/duties",
    "duty": "/duties/ses_backups",
    "brief": "/brief",
    "brief-mission": "/brief/ses_top",
    "stop": "/stop",
    "start": "/start",
    "devices": "/devices",
    "error": "/sessions/nothing-like-this",
}
"""Name of a picture → path of its page."""

WIDTHS = {"wide": (1280, 860), "phone": (390, 844)}
ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
CHROMIUM = "/usr/bin/chromium"


@contextmanager
def served(home: Path) -> Iterator[str]:
    """Serve a home in a process of its own; yields a login link."""
    command = [sys.executable, "-m", "holdfast", "serve", "--home", str(home), "--port", "0", "--json"]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            yield next(said["link"] for said in map(json.loads, process.stdout) if said.get("type") == "link")
        finally:
            process.terminate()


def shoot(browser: Any, link: str, folder: Path, only: str) -> None:
    """Take the pictures."""
    first = browser.new_page()
    first.goto(link)
    login = first.context.storage_state()
    base = link.partition("/login")[0]
    for theme in ("light", "dark"):
        for width, (across, down) in WIDTHS.items():
            context = browser.new_context(
                storage_state=login,
                color_scheme=theme,
                viewport={"width": across, "height": down},
                device_scale_factor=1,
                is_mobile=width == "phone",
                has_touch=width == "phone",
            )
            page = context.new_page()
            for name, path in SCREENS.items():
                if only in ("", name):
                    page.goto(base + path)
                    page.wait_for_load_state("load")
                    file = folder / f"{name}-{width}-{theme}.png"
                    if width == "wide":  # the browser paints long lists only where they are on the screen
                        tall = page.evaluate("document.documentElement.scrollHeight")
                        page.set_viewport_size({"width": across, "height": max(down, tall)})
                    page.screenshot(path=file)
                    page.set_viewport_size({"width": across, "height": down})
                    print(file)
            context.close()


def main() -> None:
    """Make a home, serve it, and take the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--to", type=Path, default=Path("build/screenshots"))
    parser.add_argument("--only", default="", choices=("", *SCREENS))
    args = parser.parse_args()
    if not Path(CHROMIUM).exists():
        sys.exit("screenshots need a browser: apt-get install chromium fonts-dejavu-core")
    args.to.mkdir(parents=True, exist_ok=True)

    def pictures(home: Path) -> None:
        with served(home) as link, sync_playwright() as tool:
            browser = tool.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
            shoot(browser, link, args.to, args.only)
            browser.close()

    async def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            async with web_home(Path(folder) / "home") as made:
                await populate(made)
                await anyio.to_thread.run_sync(partial(pictures, made.home))

    anyio.run(run)


if __name__ == "__main__":
    main()

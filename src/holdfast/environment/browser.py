"""The parts of the `browser` recipe: Debian's Chromium without a window, Playwright to drive it, a command for a page.

Chromium runs as a service inside the sandbox. Its own sandbox is off: it wants namespaces, which are closed inside; the
walls around the hands are the walls around it. It reaches what the hands reach, by the same proxy.
"""

from __future__ import annotations

from holdfast.environment.base import SHARED
from holdfast.facts.session import Service

PORT = 9222

_HOME = f"{SHARED}/browser"
_PROGRAM = "/usr/bin/chromium-headless-shell"

PACKAGES = ("chromium-headless-shell", "fonts-dejavu-core", "nodejs")

ENV = {
    "BROWSER_URL": f"http://127.0.0.1:{PORT}",
    "CHROMIUM": _PROGRAM,
    "FONTCONFIG_FILE": f"{_HOME}/fonts.conf",
    "NODE_PATH": f"{_HOME}/node_modules",
}

_PAGE = """\
const { chromium } = require('playwright-core');

const HELP = `page URL [ACTION ...]   opens a page in the browser and prints what a person would read there
  --click SELECTOR          --fill SELECTOR TEXT     --press SELECTOR KEY
  --see TEXT                wait until this is there; fails when it does not come
  --eval SCRIPT             print what this comes to    --size WIDTHxHEIGHT
  --shot FILE               a picture of the whole page
Actions are done in order. A selector is CSS, or text=WORDS.`;

async function main(words) {
  const url = words.shift();
  if (!url || url.startsWith('-')) { console.log(HELP); return url === '--help' ? 0 : 2; }
  const browser = await chromium.connectOverCDP(process.env.BROWSER_URL);
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  try {
    return await visit(await context.newPage(), url, words);
  } finally {
    await context.close();
    await browser.close();
  }
}

async function visit(page, url, words) {
  page.setDefaultTimeout(15000);
  const said = [];
  page.on('console', (message) => said.push(`[console ${message.type()}] ${message.text()}`));
  page.on('pageerror', (error) => said.push(`[error] ${error.message}`));
  page.on('requestfailed', (request) => said.push(`[failed] ${request.url()} ${request.failure()?.errorText ?? ''}`));
  const response = await page.goto(url, { waitUntil: 'load' });
  const take = () => {
    if (!words.length) throw new Error('an action lacks a word; see: page --help');
    return words.shift();
  };
  const actions = {
    '--click': async () => page.locator(take()).first().click(),
    '--fill': async () => page.locator(take()).first().fill(take()),
    '--press': async () => page.locator(take()).first().press(take()),
    '--see': async () => page.getByText(take()).first().waitFor(),
    '--eval': async () => console.log(JSON.stringify(await page.evaluate(take()))),
    '--shot': async () => page.screenshot({ path: take(), fullPage: true }),
    '--size': async () => {
      const [width, height] = take().split('x').map(Number);
      await page.setViewportSize({ width, height });
    },
  };
  while (words.length) {
    const word = words.shift();
    if (!actions[word]) throw new Error(`${word} is no action; see: page --help`);
    await actions[word]();
  }
  console.log(`${page.url()}  ${response ? response.status() : ''}  ${await page.title()}`);
  said.slice(0, 50).forEach((line) => console.log(line));
  console.log('\\n' + (await page.innerText('body')).slice(0, 20000));
  return 0;
}

main(process.argv.slice(2)).then(
  (status) => process.exit(status),
  (error) => { console.error(String(error.message ?? error).split('\\n').slice(0, 8).join('\\n')); process.exit(1); },
);
"""

_FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>/usr/share/fonts</dir><cachedir>/tmp/fontconfig</cachedir></fontconfig>
"""

COMMANDS = (
    f"""\
set -e
mkdir -p {_HOME} {SHARED}/bin
cd {_HOME}
if command -v npm > /dev/null; then
  npm install --prefix . --ignore-scripts --no-audit --no-fund --no-save playwright-core@1
elif python3 -m pip --version > /dev/null 2>&1; then
  python3 -m pip download --no-deps --dest wheel playwright
  python3 -m zipfile -e wheel/*.whl wheel/out
  mkdir -p node_modules
  mv wheel/out/playwright/driver/package node_modules/playwright-core
  rm -rf wheel
else
  echo "the browser recipe fetches Playwright with npm or pip, and neither is here: name one in packages" >&2
  exit 1
fi
cat > fonts.conf <<'END_OF_FONTS'
{_FONTS}END_OF_FONTS
cat > page.js <<'END_OF_PAGE'
{_PAGE}END_OF_PAGE
printf '#!/bin/sh\\nexec node {_HOME}/page.js "$@"\\n' > {SHARED}/bin/page
chmod 755 {SHARED}/bin/page
""",
)

_SWITCHES = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
    "--disable-component-update --disable-sync --disable-default-apps --disable-breakpad --no-first-run "
    f"--disk-cache-size=16777216 --user-data-dir=/tmp/browser --remote-debugging-port={PORT}"
)
"""/tmp and /dev/shm are small folders in memory, so nothing much is kept there."""

_PROXY = "${https_proxy:+--proxy-server=$https_proxy}"

_READY = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{PORT}/json/version', timeout=2)"

SERVICES = (
    Service(
        "browser", f"exec {_PROGRAM} {_SWITCHES} {_PROXY} about:blank", f'env no_proxy=127.0.0.1 python3 -c "{_READY}"'
    ),
)

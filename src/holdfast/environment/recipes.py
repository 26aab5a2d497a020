"""Shell scripts of a set-up: named recipes, Debian packages, submodules, large files, and versions.

They run in a sandbox as an ordinary user. Packages are unpacked in a sandbox without the workspace, before any code of
the workspace runs, because later sandboxes take their system programs from there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.environment.base import SHARED
from holdfast.errors import UsageError
from holdfast.facts.session import Service


class Recipe(NamedTuple):
    """Additions of a recipe to an environment. `env` is set in every command of the work."""

    packages: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    services: tuple[Service, ...] = ()
    env: dict[str, str] = {}


_PORT = 9222

_HOME = f"{SHARED}/browser"
_PROGRAM = "/usr/bin/chromium-headless-shell"

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

_INSTALL = f"""\
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
"""

_SWITCHES = (
    "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --disable-background-networking "
    "--disable-component-update --disable-sync --disable-default-apps --disable-breakpad --no-first-run "
    f"--disk-cache-size=16777216 --user-data-dir=/tmp/browser --remote-debugging-port={_PORT}"
)
"""Switches of Chromium that fit /tmp and /dev/shm, which are small folders in memory."""

_PROXY = "${https_proxy:+--proxy-server=$https_proxy}"

_READY = f"import urllib.request as r; r.urlopen('http://127.0.0.1:{_PORT}/json/version', timeout=2)"

_BROWSER = Recipe(
    packages=("chromium-headless-shell", "fonts-dejavu-core", "nodejs"),
    commands=(_INSTALL,),
    services=(
        Service(
            "browser",
            f"exec {_PROGRAM} {_SWITCHES} {_PROXY} about:blank",
            f'env no_proxy=127.0.0.1 python3 -c "{_READY}"',
        ),
    ),
    env={
        "BROWSER_URL": f"http://127.0.0.1:{_PORT}",
        "CHROMIUM": _PROGRAM,
        "FONTCONFIG_FILE": f"{_HOME}/fonts.conf",
        "NODE_PATH": f"{_HOME}/node_modules",
    },
)
"""Debian's Chromium without a window, Playwright to drive it, and the command `page`.

Chromium runs as a service in the sandbox, without its own sandbox, which needs namespaces that the sandbox denies. It
uses the same proxy as all other programs there.
"""

_DATA = f"{SHARED}/postgresql"

RECIPES: dict[str, Recipe] = {
    "browser": _BROWSER,
    "postgresql": Recipe(
        packages=("postgresql",),
        commands=(
            f"initdb -D {_DATA} -U agent -A trust -E UTF8 --no-sync && "
            f'printf "%s\\n" "listen_addresses = \'127.0.0.1\'" "unix_socket_directories = \'/tmp\'" '
            f"'fsync = off' 'shared_buffers = 16MB' >> {_DATA}/postgresql.conf && "
            f"pg_ctl -D {_DATA} -w -l /tmp/postgresql.log start && createdb -h /tmp -U agent agent && "
            f"pg_ctl -D {_DATA} -w stop",
        ),
        services=(Service("postgresql", f"exec postgres -D {_DATA}", "pg_isready -q -h 127.0.0.1"),),
        env={"PGHOST": "127.0.0.1", "PGUSER": "agent", "PGDATABASE": "agent"},
    ),
}
"""All recipes by name. The files of a database are part of the layer, so each new sandbox starts with a fresh copy."""


def recipe(name: str) -> Recipe:
    """Return a recipe by name. Raises `UsageError`."""
    if name not in RECIPES:
        known = ", ".join(sorted(RECIPES))
        raise UsageError(f"unknown environment recipe {name!r}; `recipes` under [environment] may name {known}")
    return RECIPES[name]


_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]*(:[a-z0-9-]+)?(=[A-Za-z0-9.+:~-]+)?")

APT_CONF = """\
Dir::State "/workspace/state";
Dir::State::status "/var/lib/dpkg/status";
Dir::Cache "/workspace/cache";
Dir::Log "/workspace/log";
Dir::Etc::main "/dev/null";
Dir::Etc::parts "/dev/null";
APT::Sandbox::User "";
APT::Install-Recommends "false";
APT::Get::Assume-Yes "true";
Debug::NoLocking "true";
Acquire::Retries "2";
Acquire::http::Proxy "http://127.0.0.1:@PORT@";
Acquire::https::Proxy "http://127.0.0.1:@PORT@";
"""
"""Configuration of apt, in addition to this machine's settings of package sources."""

_UNPACK = """\
set -e
mkdir -p state/lists/partial cache/archives/partial log root/usr/bin root/usr/sbin root/usr/lib
for name in bin sbin lib lib32 lib64 libx32; do
  if [ -L "/$name" ]; then ln -s "usr/$name" "root/$name"; mkdir -p "root/usr/$name"; fi
done
export APT_CONFIG=/workspace/apt.conf
fetch() {{ apt-get -q install --download-only {packages}; }}
cp /var/lib/apt/lists/*_*Release* /var/lib/apt/lists/*_Packages* state/lists/ 2>/dev/null || true
if ! {{ [ -n "$(ls state/lists/*_Packages* 2>/dev/null)" ] && fetch; }}; then
  apt-get -q update || true
  fetch
fi
for file in cache/archives/*.deb; do
  [ -e "$file" ] || continue
  dpkg-deb --fsys-tarfile "$file" | tar -x -C root --keep-directory-symlink --no-same-owner --no-same-permissions
  dpkg-deb --show --showformat '${{Package}}=${{Version}}\\n' "$file" >> installed
done
chmod -R u+rwX,go+rX root
rm -rf state cache log
cat installed 2>/dev/null || true
"""


def unpack(packages: Iterable[str]) -> str:
    """Return the command that unpacks packages and dependencies into `root`. Raises `UsageError` for a bad name."""
    for name in packages:
        if not _PACKAGE.fullmatch(name):
            raise UsageError(
                f"{name!r} is not the name of a Debian package; `packages` under [environment] takes names such as "
                "libpng-dev, or libpng-dev=1.6.39-2"
            )
    return _UNPACK.format(packages=" ".join(map(shlex.quote, packages)))


SUBMODULES = """\
# fetch submodules
set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_TERMINAL_PROMPT=0 GIT_ALLOW_PROTOCOL=https:http:file
git config --file .gitmodules --get-regexp '^submodule\\..*\\.path$' | while read -r key path; do
  name="${key#submodule.}"; name="${name%.path}"
  url="$(git config --file .gitmodules --get "submodule.$name.url")"
  commit="$(git ls-tree HEAD -- "$path" | sed -n 's/^160000 commit \\([0-9a-f]*\\).*/\\1/p')"
  [ -n "$commit" ] || continue
  case "$url" in
    ./*|../*)
      base="$(git config --get remote.origin.url || pwd)"
      while case "$url" in ./*|../*) true;; *) false;; esac; do
        case "$url" in ../*) base="${base%/*}";; esac
        url="${url#*/}"
      done
      url="$base/$url";;
  esac
  case "/$path/" in */../*|//*) echo "submodule $name has the path $path, which leaves the workspace" >&2; exit 1;; esac
  if [ -n "$(ls -A "$path" 2>/dev/null)" ]; then continue; fi
  git clone --quiet --no-checkout -- "$url" "$path"
  git -C "$path" checkout --quiet --detach "$commit"
  git -C "$path" submodule update --quiet --init --recursive
done
"""
"""Clones each submodule separately, since the workspace's `.git` is read-only in the sandbox."""

LFS = """\
# fetch large files
set -e
command -v git-lfs >/dev/null || { echo "git-lfs is not here: add it to packages under [environment]" >&2; exit 1; }
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null GIT_TERMINAL_PROMPT=0
own="$TMPDIR/large-files"
git clone --quiet --shared --no-checkout . "$own"
url="$(git config --get remote.origin.url || true)"
if [ -n "$url" ]; then git -C "$own" remote set-url origin "$url"; fi
git grep -lI --cached '^version https://git-lfs.github.com/spec/' -- | while read -r path; do
  [ -f "$path" ] && [ "$(stat -c %s -- "$path")" -lt 1024 ] || continue
  git -C "$own" lfs smudge < "$path" > "$path.lfs~"
  mv -f -- "$path.lfs~" "$path"
done
"""
"""Replaces pointers with large files, fetched in a separate clone since the workspace's `.git` is read-only."""

LFS_POINTER = b"version https://git-lfs.github.com/spec/"

PLACES = (
    r"find . -name .git -prune -o -empty \( -type d -perm 555 -o -type f -perm 444 \) -print0 2>/dev/null"
    " | xargs -0r rm -df -- 2>/dev/null; true"
)
"""Removes empty mount points of other sandboxes from the set-up's view of the workspace."""

LIBRARIES = "/sbin/ldconfig -X -C ld.so.cache -f /etc/ld.so.conf 2>/dev/null || rm -f ld.so.cache"
"""Lists the libraries of the unpacked packages. Runs in their folder, before any code of a workspace."""

VERSIONS = """\
say() { command -v "$1" >/dev/null 2>&1 && printf '%s\\t%s\\n' "$1" "$("$@" 2>&1 | head -n 1)"; }
say python3 --version; say node --version; say cc --version; say cmake --version; say git --version
say cargo --version; say go version; say postgres --version
true
"""


def versions_of(printed: str) -> dict[str, str]:
    """Parse the output of `VERSIONS`."""
    pairs = (line.partition("\t") for line in printed.splitlines())
    return {name: said.strip()[:200] for name, tab, said in pairs if tab and said.strip()}

"""The commands of a set-up that are ours: unpacking Debian packages, submodules, large files, versions.

They run inside hands, as an ordinary user. The packages are unpacked in hands that see no workspace, before anything of
a workspace runs: later hands take their system programs from there.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable

from holdfast.errors import UsageError

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
"""What apt is told beside the settings of this machine that say what to fetch."""

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
    """The command that unpacks these and what they need into `root`. Raises `UsageError` for what is no package."""
    for name in packages:
        if not _PACKAGE.fullmatch(name):
            raise UsageError(
                f"{name!r} is no name of a Debian package; `packages` under [environment] takes names such as "
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
"""Puts submodules where they belong, as clones of their own, since the workspace's `.git` is read-only in hands."""

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
"""Puts the content of large files where their pointers are. A clone of its own has room for them in its `.git`."""

LFS_POINTER = b"version https://git-lfs.github.com/spec/"

PLACES = (
    r"find . -name .git -prune -o -empty \( -type d -perm 555 -o -type f -perm 444 \) -print0 2>/dev/null"
    " | xargs -0r rm -df -- 2>/dev/null; true"
)
"""Takes what other hands need for their mounts in this workspace out of the set-up's sight: it is nobody's work."""

LIBRARIES = "/sbin/ldconfig -X -C ld.so.cache -f /etc/ld.so.conf 2>/dev/null || rm -f ld.so.cache"
"""Lists the libraries of the unpacked packages too. Runs before anything of a workspace does, in their own folder."""

VERSIONS = """\
say() { command -v "$1" >/dev/null 2>&1 && printf '%s\\t%s\\n' "$1" "$("$@" 2>&1 | head -n 1)"; }
say python3 --version; say node --version; say cc --version; say cmake --version; say git --version
say cargo --version; say go version; say postgres --version
true
"""


def versions_of(printed: str) -> dict[str, str]:
    """What `VERSIONS` printed."""
    pairs = (line.partition("\t") for line in printed.splitlines())
    return {name: said.strip()[:200] for name, tab, said in pairs if tab and said.strip()}

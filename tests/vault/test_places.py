"""Where secrets are read, and from where they are not: files that others reach, commands that misbehave."""

from __future__ import annotations

import io
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from rich.pretty import pretty_repr

from holdfast.clock import SystemClock
from holdfast.errors import SecretUnavailable
from holdfast.vault import keyring_child
from holdfast.vault.base import Secret
from holdfast.vault.reference_vault import KEPT_S, ReferenceVault, put, take_over
from holdfast.vault.sources import FAILURES, VARIABLES, Source, read_keyring, run
from tests.support.waiting import PATIENCE_S
from tests.vault.rigs import Hurried

VALUE = "place-Value-0123456789"


def _of_file(path: Path | str, home: str = "") -> str:
    vault = ReferenceVault([Source("s", "file", (str(path),))], {"HOME": home}, SystemClock())
    try:
        return vault.resolve("s").reveal()
    except SecretUnavailable as error:
        return str(error)


@pytest.fixture
def token(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir(0o700)
    file = folder / "token"
    file.touch(0o600)
    file.write_text(VALUE)
    return file


def test_a_file_of_ones_own_is_read(token: Path) -> None:
    assert _of_file(token) == VALUE
    assert _of_file("~/own/token", str(token.parents[1])) == VALUE
    assert "the home folder" in _of_file("~/own/token")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_file_that_others_reach_is_refused(token: Path, mode: int) -> None:
    token.chmod(mode)
    said = _of_file(token)
    assert f"type: chmod 600 {token}" in said
    assert VALUE not in said


def test_a_folder_that_others_can_write_is_refused(token: Path) -> None:
    token.parent.chmod(0o777)
    assert f"type: chmod go-w {token.parent}" in _of_file(token)
    token.parent.chmod(0o1777)  # others cannot move it away there
    assert _of_file(token) == VALUE


def test_links_pipes_folders_and_nothing_are_refused(token: Path, tmp_path: Path) -> None:
    link = token.with_name("link")
    link.symlink_to(token)
    assert "is a symbolic link" in _of_file(link)
    os.mkfifo(token.with_name("pipe"), 0o600)
    assert "not a regular file" in _of_file(token.with_name("pipe"))
    assert "not a regular file" in _of_file(token.parent)
    assert "No such file" in _of_file(token.with_name("none"))
    (tmp_path / "by").symlink_to(token.parent)
    assert _of_file(tmp_path / "by" / "token") == VALUE  # a folder may be a link to one that nobody else can write


def test_a_file_of_another_user_is_refused(token: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make a file another user's")
    os.chown(token, 65534, 65534)
    assert "belongs to another user" in _of_file(token)
    os.chown(token, 0, 0)
    os.chown(token.parent, 65534, 65534)
    assert "writable by others" in _of_file(token)


# --- commands --------------------------------------------------------------------------------------


def _python(text: str, *, most: int = 100, timeout_s: float = PATIENCE_S, **variables: str) -> tuple[bytes, str]:
    env = {"PATH": os.environ["PATH"], **variables}
    found = run((sys.executable, "-c", text), env, SystemClock(), most=most, timeout_s=timeout_s)
    assert "secretly" not in repr(found)
    return found.data, found.problem


def test_a_command_gives_what_it_prints() -> None:
    assert _python("print('a b')") == (b"a b\n", "")
    assert _python("import os; print(sorted(os.environ))", most=1000, ONLY="1")[0].count(b"'") < 14
    assert _python("import sys; print(sys.stdin.read() == '')") == (b"True\n", "")


def test_a_command_that_misbehaves_gives_nothing() -> None:
    assert _python("print('secretly' * 1000)") == (b"", "it printed more than 100 bytes")
    assert _python("print('secretly'); raise SystemExit(3)") == (b"", "it ended with status 3")
    assert _python("import os; os.kill(os.getpid(), 9)") == (b"", "it ended with signal 9")
    late = "it took longer than 0 s"
    assert _python("import time; print('secretly', flush=True); time.sleep(60)", timeout_s=0.3) == (b"", late)
    assert _python("import os, time; os.close(1); time.sleep(60)", timeout_s=0.3) == (b"", late)
    missing = run(("no-such-program-here",), {"PATH": os.environ["PATH"]}, SystemClock(), most=10)
    assert missing.problem == "program no-such-program-here not found in PATH"


def test_what_a_command_leaves_behind_is_ended(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    text = (
        f"import os, time; pid = os.fork()\nif pid: open({str(pid_file)!r}, 'w').write(str(pid))\nelse: time.sleep(60)"
    )
    for limit_s in (2.0, 10.0, 50.0):  # a loaded machine may take longer until the program runs
        # The process left behind holds the pipe.
        assert _python(text, timeout_s=limit_s)[1].startswith("it took longer")
        if pid_file.exists():
            break
    try:
        watched = os.pidfd_open(int(pid_file.read_text()))
    except ProcessLookupError:
        return
    assert select.select([watched], [], [], 20.0)[0] == [watched]
    os.close(watched)


def test_no_shell_reads_the_words(tmp_path: Path) -> None:
    source = Source("s", "command", ("echo", f"long-enough $(touch {tmp_path}/made); x"))
    vault = ReferenceVault([source], {"PATH": os.environ["PATH"]}, SystemClock())
    assert vault.resolve("s").reveal() == f"long-enough $(touch {tmp_path}/made); x"
    assert not (tmp_path / "made").exists()


def test_a_commands_answer_counts_for_a_while(tmp_path: Path) -> None:
    counter = tmp_path / "asked"
    text = f"open({str(counter)!r}, 'a').write('x'); print('value-' + '1' * 10)"
    clock = Hurried()
    variables = {"PATH": os.environ["PATH"]}
    vault = ReferenceVault([Source("s", "command", (sys.executable, "-c", text))], variables, clock)
    for _ in range(3):
        vault.resolve("s")
    assert counter.read_text() == "x"
    clock.skipped_s += KEPT_S
    vault.resolve("s")
    assert counter.read_text() == "xx"


def test_a_handover_has_what_is_named_and_no_more() -> None:
    variables = {"TOKEN": VALUE, "OTHER": "other-Value-0123456789", "PATH": os.environ["PATH"], "BOOT": "boot-value"}
    words = (sys.executable, "-c", "import os; print(os.environ['BOOT'] + '-from-it')")
    sources = [
        Source("a", "env", ("TOKEN",)),
        Source("b", "env", ("OTHER",)),
        Source("c", "command", words, variables=("BOOT",)),
    ]
    vault = ReferenceVault(sources, variables, SystemClock())
    assert b"Value" not in vault.handover([])
    data = vault.handover(["a"])
    assert VALUE.encode() in data
    assert b"other-Value" not in data
    assert os.environ["PATH"].encode() not in data
    assert take_over(vault.handover(["c"]), SystemClock()).resolve("c").reveal() == "boot-value-from-it"
    assert "TOKEN" not in VARIABLES


def test_what_a_later_handover_lacks_stays_as_it_was() -> None:
    sources = [Source("a", "env", ("TOKEN",)), Source("b", "env", ("OTHER",))]
    clock = SystemClock()
    first = take_over(ReferenceVault(sources, {"TOKEN": VALUE, "OTHER": VALUE}, clock).handover(["a", "b"]), clock)
    lacking = ReferenceVault(sources, {"OTHER": "rotated-0123456789"}, clock).handover(["a", "b"])
    second = take_over(lacking, clock, first)
    assert second.resolve("a").reveal() == VALUE
    assert second.resolve("b").reveal() == "rotated-0123456789"
    with pytest.raises(SecretUnavailable, match="TOKEN is not set"):
        take_over(lacking, clock).resolve("a")
    third = take_over(ReferenceVault(sources, {}, clock).handover(["b"]), clock, second)
    assert VALUE.encode() not in third.handover(["b"])


def test_a_machine_without_a_keyring_says_what_to_do(tmp_path: Path) -> None:
    variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    said = read_keyring("s", ("service", "name"), variables, SystemClock())
    assert said == "this machine has no keyring; name a file or a command instead"


def test_a_value_is_put_whole_or_not_at_all(tmp_path: Path) -> None:
    source = Source("s", "file", (str(tmp_path / "file" / "s"),))
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SecretUnavailable, match="nothing has changed") as caught:
        put(source, Secret(VALUE), {}, SystemClock())
    assert VALUE not in str(caught.value)
    with pytest.raises(SecretUnavailable, match="comes from a command"):
        put(Source("s", "command", ("pass",)), Secret(VALUE), {}, SystemClock())


def test_a_report_of_a_failure_with_all_variables_shows_none() -> None:
    secret = ReferenceVault([Source("s", "env", ("TOKEN",))], {"TOKEN": VALUE}, SystemClock()).resolve("s")
    console = Console(file=io.StringIO(), width=200, record=True)
    try:
        held = [secret, {"authorization": secret}]
        raise SecretUnavailable(f"{secret} could not be used {len(held)}")
    except SecretUnavailable:
        console.print_exception(show_locals=True)
    console.print(pretty_repr(secret), secret, [secret])
    said = console.export_text()
    assert "Secret(…)" in said
    assert VALUE not in said


def test_without_the_extra_the_keyring_says_what_to_type() -> None:
    program = Path(keyring_child.__file__)
    asked = subprocess.run([sys.executable, "-S", "-I", program, "get", "service", "name"], check=False)
    assert asked.returncode == keyring_child.NOT_INSTALLED
    assert "pip install 'holdfast[keyring]'" in FAILURES[asked.returncode]

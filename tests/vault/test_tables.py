"""The tables of holdfast.toml about hands, environments, the way outside and secrets."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.app.settings import egress_policy, policies
from holdfast.app.settings.config import load_settings
from holdfast.app.settings.egress_policy import open_vault, secret_sources
from holdfast.clock import SystemClock
from holdfast.egress.rules import Place
from holdfast.errors import SecretUnavailable, UsageError
from holdfast.facts.session import Destination, EgressPolicy, Environment, HandsPolicy, Searcher, SecretUse, Service
from tests.house.source import ROOT
from tests.vault.conftest import Load

WHOLE = """
[hands]
memory_bytes = "1.5G"
processes = "none"
cpus = 0.5
disk_bytes = 1048576
require_hard = ["memory", "network"]
warm = 0
idle_s = "5m"

[environment]
auto = true
setup = ["npm ci"]
packages = ["libpq-dev", "cmake=3.25.1-1"]
toolchains = ["/opt/node"]
services = [{name = "db", command = "postgres", health = "pg_isready", ready_s = "30s"}]
hosts = ["packages.example.com:8443"]
dotenv = {API_KEY = "payments"}

[egress]
allow = ["API.example.com", "git.example.com:8443", {host = "docs.example.com", methods = ["GET"], paths = ["/v1/*"]},
    {host = "10.0.0.7", ports = [80, 8080], plain = true, private = true}, "[2001:db8::1]:444"]
registries = true
ask = "always"
bytes_max = "1M"
requests_max = 7
proxy = "http://proxy.example.com:3128"

[secrets.payments]
from = "env:PAY"
hosts = ["api.example.com"]
variable = "PAYMENTS_KEY"
header = "X-Api-Key"
expires = 2027-01-31

[secrets.forge]
from = ["command:pass", "show", "forge"]
pass_env = ["PASS_KEY"]
hosts = ["git.example.com"]
basic = true
methods = ["GET", "POST"]
paths = ["/team/web.git/*"]
push = ["refs/heads/agent/*", "-refs/heads/agent/old"]

[search.one]
url = "https://search.example.com/api?q={query}"
results = "web.results"
"""


def test_all_of_it_is_read(load: Load) -> None:
    settings = load(WHOLE)
    assert policies.hands(settings) == HandsPolicy(
        memory_bytes=3 << 29,
        processes=None,
        cpus=0.5,
        disk_bytes=1 << 20,
        require_hard=("memory", "network"),
        idle_s=300.0,
    )
    assert policies.environment(settings) == Environment(
        auto=True,
        setup=("npm ci",),
        packages=("libpq-dev", "cmake=3.25.1-1"),
        toolchains=("/opt/node",),
        services=(Service("db", "postgres", "pg_isready", 30.0),),
        hosts=(Destination("packages.example.com", (8443,)),),
        dotenv={"API_KEY": "payments"},
    )
    forge = SecretUse(
        "forge",
        ("git.example.com",),
        basic=True,
        methods=("GET", "POST"),
        paths=("/team/web.git/*",),
        push=("refs/heads/agent/*", "-refs/heads/agent/old"),
    )
    assert egress_policy.egress(settings) == EgressPolicy(
        allow=(
            Destination("api.example.com"),
            Destination("git.example.com", (8443,)),
            Destination("docs.example.com", methods=("GET",), paths=("/v1/*",)),
            Destination("10.0.0.7", (80, 8080), plain=True, private=True),
            Destination("2001:db8::1", (444,)),
            Destination("search.example.com"),
        ),
        registries=True,
        secrets=(SecretUse("payments", ("api.example.com",), "PAYMENTS_KEY", "x-api-key"), forge),
        ask="always",
        bytes_max=1 << 20,
        requests_max=7,
    )
    assert egress_policy.upstream(settings) == Place("proxy.example.com", 3128)
    assert egress_policy.searchers(settings) == (
        Searcher("one", "https://search.example.com/api?q={query}", "web.results"),
    )
    payments, of_forge = secret_sources(settings)
    assert payments.expires_us == int(datetime(2027, 1, 31, tzinfo=UTC).timestamp()) * 1_000_000
    assert (of_forge.kind, of_forge.place, of_forge.variables) == ("command", ("pass", "show", "forge"), ("PASS_KEY",))


def test_without_tables_nothing_is_let_through(load: Load) -> None:
    settings = load()
    assert egress_policy.egress(settings) == EgressPolicy()
    assert egress_policy.upstream(settings) is None
    assert policies.hands(settings) == HandsPolicy()
    assert policies.environment(settings) == Environment()


def test_a_command_adds_hosts_and_chooses_secrets(load: Load) -> None:
    policy = egress_policy.egress(load(WHOLE), hosts=["a.example.com", "b.example.com:99"], secrets=["forge"])
    assert policy.allow[-3:-1] == (Destination("a.example.com"), Destination("b.example.com", (99,)))
    assert [use.name for use in policy.secrets] == ["forge"]
    assert egress_policy.egress(load(WHOLE), secrets=[]).secrets == ()
    with pytest.raises(UsageError, match="there is no secret 'forg'; did you mean 'forge'"):
        egress_policy.egress(load(WHOLE), secrets=["forg"])
    with pytest.raises(UsageError, match="wildcard"):
        egress_policy.egress(load(), hosts=["*.example.com"])


SECRET = '[secrets.a]\nhosts = ["api.example.com"]\nfrom = "env:A"\n'

BAD = {
    '[egress]\nalow = ["x"]': "unknown key 'alow' in [egress]; did you mean 'allow'",
    '[egress]\nallow = "api.example.com"': "has to be a list of hosts",
    '[egress]\nallow = ["*.example.com"]': "name each host exactly",
    '[egress]\nallow = ["https://api.example.com/v1"]': "name the host alone",
    '[egress]\nallow = ["api.example.com:0"]': "it is not a port",
    '[egress]\nallow = ["api.example.com:https"]': "no host",
    '[egress]\nallow = ["user@api.example.com"]': "no host",
    '[egress]\nallow = ["0x7f.1"]': "an address needs four decimal numbers",
    '[egress]\nallow = ["api.example.com\\u0000.evil.example"]': "no host",
    '[egress]\nallow = [{host = "a.example.com", method = ["GET"]}]': "did you mean 'methods'",
    "[egress]\nallow = [{ports = [1]}]": "names no host",
    '[egress]\nallow = [{host = "a.example.com", ports = [0]}]': "list of up to 16 ports",
    '[egress]\nallow = [{host = "a.example.com:1", ports = [2]}]': "leave one of them out",
    '[egress]\nallow = [{host = "a.example.com", methods = ["get"]}]': "no method",
    '[egress]\nallow = [{host = "a.example.com", paths = ["v1"]}]': "begin with /",
    '[egress]\nregistries = "yes"': "has to be true or false",
    '[egress]\nask = "sometimes"': "one of tainted, always, never",
    '[egress]\nbytes_max = "lots"': "is not a size, such as 512M or 8G",
    "[egress]\nrequests_max = 0": "not a whole number",
    '[egress]\nproxy = "https://proxy.example.com"': "http:// address",
    '[egress]\nproxy = "http://user:word@proxy.example.com:1"': "cannot be used",
    "egress = 3": "has to be a table in a file",
    '[secrets."a b"]\nfrom = "env:A"': "has a name that cannot be used",
    'secrets = "canary-0123456789"': "has to be tables in a file, such as [secrets.NAME]",
    "[secrets]\na = 3": "has to be tables in a file",
    '[secrets.a]\nfrom = "env:A"': "[secrets.a] has no hosts",
    '[secrets.a]\nhosts = ["a.example.com"]': "[secrets.a] has no from",
    '[secrets.a]\nhosts = []\nfrom = "env:A"': "name a host at least",
    '[secrets.a]\nhosts = ["*.example.com"]\nfrom = "env:A"': "no host",
    '[secrets.a]\nhosts = ["a.example.com"]\nfrom = "canary-0123456789"': "not the secret itself",
    '[secrets.a]\nhosts = ["a.example.com"]\nfrom = ["canary-0123456789", "x"]': "not the secret itself",
    '[secrets.a]\nhosts = ["a.example.com"]\nfrom = "env:NOT A NAME"': "does not name an environment variable",
    '[secrets.a]\nhosts = ["a.example.com"]\nfrom = "file:token"': "needs an absolute path",
    '[secrets.a]\nhosts = ["a.example.com"]\nfrom = "keyring:holdfast"': "a service and a name",
    '[secrets.a]\nhosts = ["a.example.com"]\nfrom = "command:pass show a"': "a list of words",
    SECRET + 'pass_env = ["B"]': "for commands alone",
    SECRET + 'header = "content-length"': "no header that can hold a secret",
    SECRET + 'header = "x: y"': "no header that can hold a secret",
    SECRET + 'variable = "LD_PRELOAD"': "changes how programs run",
    SECRET + 'variable = "A B"': "not the name of an environment variable",
    SECRET
    + 'variable = "A"\n[secrets.b]\nhosts = ["a.example.com"]\nfrom = "env:B"\nvariable = "A"': "same variable, A",
    SECRET + 'push = ["refs/heads/a"]': "add basic = true",
    SECRET + 'basic = true\npush = ["refs/heads/a"]': "needs the repository",
    SECRET + 'basic = true\npaths = ["/a/*"]\npush = ["main"]': "no pattern of whole refs",
    SECRET + 'basic = true\nheader = "x-token"': "leave header out",
    SECRET + 'expires = "soon"': "a day or a moment",
    SECRET + "expire = 2027-01-01": "did you mean 'expires'",
    '[search.a]\nurl = "http://s.example.com/{query}"': "https:// address",
    '[search.a]\nurl = "https://s.example.com/"': "once in it",
    '[search.a]\nurl = "https://{query}.example.com/"': "once in it",
    '[search.a]\nurl = "https://s.example.com/{query}"\nsecret = "a"': "which does not exist",
    SECRET + '[search.a]\nurl = "https://s.example.com/{query}"\nsecret = "a"': "not bound to that host",
    '[hands]\nmemory_bytes = "1"': "is too little",
    '[hands]\nmemory = "1G"': "did you mean 'memory_bytes'",
    "[hands]\nprocesses = 1": "is too little",
    "[hands]\ncpus = 0": "number of processors",
    '[hands]\nrequire_hard = ["memry"]': "some of files",
    "[hands]\nwarm = -1": "whole number",
    '[environment]\npackages = ["Lib; rm -rf /"]': "no name of a Debian package",
    '[environment]\ntoolchains = ["/"]': "whole path of a folder",
    '[environment]\nservices = [{name = "db"}]': "has no command",
    '[environment]\nservices = [{nme = "db"}]': "did you mean 'name'",
    '[environment]\nservices = [{name = "a", command = "x"}, {name = "a", command = "y"}]': "one name",
    '[environment]\nrecipes = ["postgres"]': "has to be a list of some of",
    '[environment]\ndotenv = {A = "payments"}': "does not exist",
    '[environment]\nhosts = ["a/b"]': "name the host alone",
}


@pytest.mark.parametrize("text", BAD)
def test_a_bad_table_is_refused_with_what_to_write(load: Load, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        _read_all(load, text)
    said = str(caught.value)
    assert BAD[text] in said
    assert "canary" not in said
    assert "\n" not in said


def _read_all(load: Load, mine: str = "", repository: str = "") -> None:
    settings = load(mine, repository)
    policies.hands(settings)
    policies.environment(settings)
    egress_policy.egress(settings)
    egress_policy.searchers(settings)
    egress_policy.upstream(settings)
    secret_sources(settings)


REFUSED = {
    "[egress]\nregistries = true": "has the table egress",
    '[secrets.a]\nfrom = "env:HOME"\nhosts = ["evil.example"]': "has tables named secrets",
    '[search.a]\nurl = "https://evil.example/{query}"': "has tables named search",
    '[environment]\nhosts = ["evil.example"]': "sets hosts in [environment]",
    '[environment]\ndotenv = {A = "payments"}': "sets dotenv in [environment]",
    '[environment]\ntoolchains = ["/root"]': "sets toolchains in [environment]",
    '[hands]\nmemory_bytes = "9G"': "sets memory_bytes in [hands]",
    '[hands]\ndisk_bytes = "none"': "sets disk_bytes in [hands]",
    "[hands]\nprocesses = 513": "sets processes in [hands]",
    '[hands]\nprovider = "landlock"': "sets provider in [hands]",
    "[hands]\naccept_weak = true": "sets accept_weak in [hands]",
    "[hands]\nwarm = 8": "sets warm in [hands]",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_repository_may_not_open_anything(load: Load, text: str) -> None:
    with pytest.raises(UsageError) as caught:
        _read_all(load, repository=text)
    assert REFUSED[text] in str(caught.value)
    assert str(load().home) not in str(caught.value)
    assert "your own" in str(caught.value)


def test_a_repository_may_describe_its_environment_and_hold_hands_tighter(load: Load) -> None:
    theirs = (
        '[environment]\nsetup = ["make deps"]\npackages = ["cmake"]\n'
        '[hands]\nmemory_bytes = "1G"\ncpus = 2\nrequire_hard = ["network"]\n'
    )
    settings = load("[hands]\nprocesses = 100\n", theirs, trusted=True)
    assert policies.hands(settings) == HandsPolicy(
        memory_bytes=1 << 30, processes=100, cpus=2.0, require_hard=("network",)
    )
    assert policies.environment(settings).setup == ("make deps",)


def test_the_environment_of_the_process_sets_no_table(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_EGRESS", "api.example.com")
    with pytest.raises(UsageError, match="has to be a table in a file"):
        load()


def test_the_tables_of_the_page_are_right(load: Load) -> None:
    page = (ROOT / "docs" / "secrets.md").read_text()
    (block,) = re.findall(r"^```toml\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    _read_all(load, block)
    assert [use.name for use in egress_policy.egress(load(block)).secrets] == ["payments", "forge"]


def test_words_of_a_command_are_no_tables(tmp_path: Path) -> None:
    words = {"egress": "session", "secrets": ["a"], "hands": "serve", "max_turns": 3}
    assert load_settings(tmp_path, words) == load_settings(tmp_path, {"max_turns": 3})


def test_the_vault_of_the_tables_reads_the_environment_of_the_process(
    load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault = open_vault(load(WHOLE.replace("2027", "2999")), SystemClock())
    monkeypatch.setenv("PAY", "pay-12345678")
    assert vault.resolve("payments").reveal() == "pay-12345678"
    monkeypatch.delenv("PAY")
    with pytest.raises(SecretUnavailable, match="PAY is not set"):
        vault.resolve("payments")

"""Names of models, their servers, keys, prices and extras: what is meant, and what is said when it cannot be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.app.available_models import PROPOSED
from holdfast.app.models import REMOTES, endpoint_of, find_model, settled_model
from holdfast.app.settings.config import Settings, load_settings
from holdfast.errors import CannotRunSafely, UsageError
from holdfast.facts.base import Usage
from holdfast.model.names import ModelName, parse_name
from holdfast.model.prices import parse_prices
from tests.model.rigs import request, user
from tests.support.trusted import trust

VARIABLES = sorted({name for remote in REMOTES.values() for name in (*remote.urls, *remote.keys)})


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_a_name_has_a_provider_a_model_and_perhaps_an_address() -> None:
    assert parse_name("ollama:qwen3:32b") == ModelName("ollama", "qwen3:32b")
    local = parse_name("openai-compatible:org/a@b@http://localhost:8000/v1/")
    assert local == ModelName("openai-compatible", "org/a@b", "http://localhost:8000/v1")
    assert str(local) == "openai-compatible:org/a@b@http://localhost:8000/v1"
    assert parse_name(str(local)) == local


@pytest.mark.parametrize(
    ("name", "base_url", "settled"),
    [
        ("anthropic:claude-x", "", "anthropic:claude-x"),
        ("openai:gpt-x", "https://proxy.example/v1/", "openai:gpt-x@https://proxy.example/v1"),
        ("openai-compatible:m", "http://127.0.0.1:8000/v1", "openai-compatible:m@http://127.0.0.1:8000/v1"),
        ("openai-compatible:m@http://h:1/v1", "", "openai-compatible:m@http://h:1/v1"),
        ("openai-compatible:m@http://h:1/v1", "http://h:1/v1", "openai-compatible:m@http://h:1/v1"),
        ("nobody:m", "", "nobody:m"),
    ],
)
def test_an_address_becomes_part_of_the_name(name: str, base_url: str, settled: str) -> None:
    assert settled_model(name, base_url) == settled
    assert settled_model(settled) == settled


def test_the_server_that_the_environment_names_is_kept_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_COMPATIBLE_BASE_URL", "http://127.0.0.1:9/v1")
    assert settled_model("openai-compatible:m") == "openai-compatible:m@http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("name", "base_url", "said"),
    [
        ("openai-compatible:m", "", "--base-url"),
        ("openai-compatible:m", "127.0.0.1:8000", "is not an http or https address"),
        ("openai-compatible:m", "http://me:word@host/v1", "must not contain a user, password"),
        ("openai-compatible:m", "http://host/v1?key=1", "must not contain a user, password"),
        ("openai-compatible:m", "http://host:99999999/v1", "is invalid"),
        ("openai-compatible:m", "http://ho st/v1", "a space"),
        ("openai-compatible:m@http://a/v1", "http://b/v1", "differ"),
        ("anthropic:", "https://a.example", "no name after the colon"),
        ("ollama:a b", "", "has a space"),
        ("scripted:m.json", "http://host/v1", "not with 'scripted:m.json'"),
    ],
)
def test_an_address_that_is_none_is_refused(name: str, base_url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        settled_model(name, base_url)


@pytest.mark.parametrize(
    ("value", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:11434/v1"),
        ("127.0.0.1:9999", "http://127.0.0.1:9999/v1"),
        ("http://gpu.example:80", "http://gpu.example:80/v1"),
        ("https://gpu.example", "https://gpu.example:443/v1"),
    ],
)
def test_ollama_says_in_several_ways_where_it_listens(value: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert endpoint_of(ModelName("ollama", "m")).base_url == "http://127.0.0.1:11434/v1"
    monkeypatch.setenv("OLLAMA_HOST", value)
    assert endpoint_of(ModelName("ollama", "m")).base_url == url


def test_the_usual_variables_name_key_and_server(monkeypatch: pytest.MonkeyPatch) -> None:
    for provider, variable, url in (
        ("anthropic", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"),
        ("openai", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ("openai-chat", "OPENAI_API_KEY", "OPENAI_BASE_URL"),
        ("google", "GOOGLE_API_KEY", "GOOGLE_GEMINI_BASE_URL"),
    ):
        monkeypatch.setenv(variable, "the-key")
        monkeypatch.setenv(url, "http://127.0.0.1:9/x")
        found = endpoint_of(ModelName(provider, "m"))
        assert (found.key, found.base_url) == ("the-key", "http://127.0.0.1:9/x")
        assert endpoint_of(ModelName(provider, "m", "http://127.0.0.1:8")).base_url == "http://127.0.0.1:8"
        assert "the-key" not in repr(found)


@pytest.mark.parametrize("provider", ["anthropic", "openai", "openai-chat", "google"])
def test_without_a_key_the_variable_is_named(provider: str) -> None:
    with pytest.raises(CannotRunSafely, match=REMOTES[provider].keys[0]):
        find_model(f"{provider}:m")


def test_a_key_that_cannot_be_one_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "two words")
    with pytest.raises(CannotRunSafely, match="cannot be a key") as caught:
        find_model("anthropic:m")
    assert "two words" not in str(caught.value)


def test_an_unknown_provider_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'anthropic'"):
        find_model("antropic:claude-x")


CORE = ("anyio", "msgspec", "idna", "sniffio", "typing_extensions.py")


@pytest.mark.parametrize("name", ["anthropic:m", "openai:m", "google:m", "ollama:m"])
def test_a_missing_extra_names_what_to_install(name: str, tmp_path: Path) -> None:
    """A Python that has the core's libraries and no others."""
    for package in CORE:
        found = next((Path(place) / package for place in sys.path if (Path(place) / package).exists()), None)
        if found is not None:
            (tmp_path / package).symlink_to(found)
    code = f"import sys; sys.path += {[str(tmp_path), str(Path(find_model.__code__.co_filename).parents[2])]!r}\n"
    code += "from holdfast.app.cli import main; sys.exit(main())"
    words = [sys.executable, "-I", "-S", "-c", code, "run", "x", "--model", name, "--home", str(tmp_path / "h")]
    keys = {variable: "k" for variable in VARIABLES if variable.endswith("KEY")}
    done = subprocess.run(words, env={"PATH": "/usr/bin:/bin", **keys}, capture_output=True, text=True, check=False)
    assert done.returncode == 5, done.stderr
    extra = REMOTES[name.partition(":")[0]].extra
    assert f"pip install 'holdfast[{extra}]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_list_prices_are_known_for_every_proposed_model(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROPOSED.values():
        for variable in REMOTES[name.partition(":")[0]].keys:
            monkeypatch.setenv(variable, "k")
        model = find_model(name)
        plain = model.cost_pico(Usage(1_000_000))
        cached = model.cost_pico(Usage(cache_read_tokens=1_000_000))
        written = model.cost_pico(Usage(cache_write_tokens=1_000_000))
        assert plain is not None
        assert cached is not None
        assert written is not None
        assert 0 < cached < plain <= written
        worst = model.worst_case_pico(request(user()))
        assert worst is not None
        assert worst > written // 1_000_000 * len("the goal") + (model.cost_pico(Usage(0, 4_096)) or 0)


def test_an_unknown_model_has_no_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    model = find_model("openai:nobody-knows-this")
    assert model.cost_pico(Usage(1)) is None
    assert model.worst_case_pico(request(user())) is None


def test_a_price_of_ones_own_comes_before_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    table = {
        "anthropic:claude-sonnet-5-5": {"input_per_mtok": 1, "output_per_mtok": 2.5, "cache_write_per_mtok": 4},
        "ollama:qwen3": {"input_per_mtok": 0, "output_per_mtok": 0},
    }
    settings = Settings(prices=parse_prices(table, "a test"))
    model = find_model("anthropic:claude-sonnet-5-5@http://127.0.0.1:1", settings)
    assert model.cost_pico(Usage(1_000_000, 2, 3, 4)) == 10**12 + 2 * 2_500_000 + 3 * 10**6 + 4 * 4 * 10**6
    local = find_model("ollama:qwen3", settings)
    assert (local.cost_pico(Usage(9, 9)), local.worst_case_pico(request(user()))) == (0, 0)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (3, "must be a table of models"),
        ({"a:b": 3}, "must be a table"),
        ({"a:b": {"input_per_mtok": 1}}, "has no output_per_mtok"),
        ({"a:b": {"input_per_mtok": 1, "output_per_mtok": -1}}, "not dollars"),
        ({"a:b": {"input_per_mtok": 1, "output_per_mtok": float("nan")}}, "not dollars"),
        ({"a:b": {"input_per_mtok": True, "output_per_mtok": 1}}, "not dollars"),
        ({"a:b": {"input_per_mtok": 1, "output_per_mtok": 1, "tax": 1}}, "unknown key 'tax'"),
    ],
)
def test_a_wrong_price_is_refused_with_a_right_one(table: object, said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        parse_prices(table, "holdfast.toml")
    assert "holdfast.toml" in str(caught.value)


PRICED = '[prices."ollama:m"]\ninput_per_mtok = 1\noutput_per_mtok = 2\n'


def test_prices_count_only_in_ones_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, theirs = tmp_path / "config" / "holdfast", tmp_path / "repo"
    mine.mkdir(parents=True)
    theirs.mkdir()
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (mine / "holdfast.toml").write_text(PRICED)
    assert load_settings(theirs, {}).prices["ollama:m"].input == 1_000_000
    (theirs / "holdfast.toml").write_text(PRICED)
    with pytest.raises(UsageError, match="counts only in your own"):
        load_settings(theirs, {})


def test_a_repository_cannot_send_keys_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "holdfast.toml"
    file.write_text('model = "anthropic:claude-x@https://elsewhere.example"\n')
    with pytest.raises(UsageError, match="another machine"):
        load_settings(tmp_path, {})
    file.write_text('model = "openai-compatible:m@http://127.0.0.1:8000/v1"\n')
    assert load_settings(tmp_path, {}).model == ""
    trust(tmp_path)
    assert load_settings(tmp_path, {}).model.startswith("openai-compatible:m@")

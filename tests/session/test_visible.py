"""What an approver reads: nothing hidden, whatever an agent writes."""

from __future__ import annotations

import json
import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.session.context.text import MARKS_MAX, is_hidden, visible, visible_json, visible_line

HIDDEN = {
    "blank: no-break space": "\u00a0",
    "blank: figure space": "\u2007",
    "blank: ideographic space": "\u3000",
    "blank: Braille pattern blank": "\u2800",
    "blank: null notehead": "\U0001d159",
    "filler: Hangul": "\u3164",
    "filler: Hangul choseong": "\u115f",
    "filler: Hangul jungseong": "\u1160",
    "filler: halfwidth Hangul": "\uffa0",
    "ignorable: grapheme joiner": "\u034f",
    "ignorable: Khmer inherent vowel": "\u17b4",
    "ignorable: soft hyphen": "\u00ad",
    "selector: variation 16": "\ufe0f",
    "selector: variation 17": "\U000e0100",
    "selector: Mongolian": "\u180b",
    "tag: letter a": "\U000e0061",
    "zero width: space": "\u200b",
    "zero width: joiner": "\u200d",
    "zero width: no-break": "\ufeff",
    "bidi: override": "\u202e",
    "bidi: isolate": "\u2066",
    "bidi: Arabic letter mark": "\u061c",
    "control: escape": "\x1b",
    "control: C1 CSI": "\x9b",
    "control: delete": "\x7f",
    "control: carriage return": "\r",
    "separator: line": "\u2028",
    "surrogate": "\ud800",
    "private use": "\ue000",
    "unassigned": "\u0378",
}


@pytest.mark.parametrize("character", HIDDEN.values(), ids=HIDDEN)
def test_a_hidden_character_is_written_out(character: str) -> None:
    said = visible(f"rm{character} -r")
    assert character not in said
    assert re.fullmatch(r"rm\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8}) -r", said)
    assert json.loads(visible_json(json.dumps(f"a{character}", ensure_ascii=False))) == f"a{character}"
    assert character not in visible_json(json.dumps(f"a{character}", ensure_ascii=False))


@pytest.mark.parametrize("text", ["\u0301x", " \u0301x", "\n\u0338x", "\t\u20ddx", "\u200b\u0301x"])
def test_a_mark_without_a_base_is_written_out(text: str) -> None:
    assert not any(unicodedata.category(each)[0] == "M" for each in visible(text))


def test_marks_that_reach_over_other_lines_are_written_out() -> None:
    said = visible("a" + "\u0301" * 50)
    assert said.count("\u0301") == MARKS_MAX
    assert said.count("\\u0301") == 50 - MARKS_MAX


@pytest.mark.parametrize(
    "text", ["make -C /w\n\tall", "é ü ß", "e\u0301", "日本 🐙", "\u2422", "क्षि", r"printf '\x1b'"]
)
def test_what_shows_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_a_line_stays_one_line_and_no_blank_is_folded() -> None:
    assert visible_line("a  b\tc\nwho  anybody") == r"a  b\x09c\x0awho  anybody"


_ANY = st.text(st.characters() | st.characters(categories=["Cs"]) | st.sampled_from("".join(HIDDEN.values())))


@given(_ANY)
def test_each_character_of_the_output_shows(text: str) -> None:
    said = visible(text)
    assert all(char in "\n\t" or (not is_hidden(char) and char.isprintable()) for char in said)
    assert visible(said) == said
    assert "\n" not in visible_line(text)


def _read_back(said: str) -> str:
    return re.sub(r"\\(?:x(..)|u(....)|U(.{8}))", lambda found: chr(int(found[1] or found[2] or found[3], 16)), said)


@given(_ANY.filter(lambda text: "\\" not in text))
def test_two_texts_never_look_the_same(text: str) -> None:
    assert _read_back(visible(text)) == text


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | _ANY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_ANY, inner, max_size=4),
    max_leaves=12,
)


@given(_JSON)
def test_json_is_the_same_value_with_nothing_hidden(value: object) -> None:
    line = visible_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(line) == value
    assert not any(is_hidden(char) for char in line)

"""Lines that fit a terminal: words, commands, paths, and the text of agents behind a bar."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.app.wrap import clipped, columns, filled, table

TEXT = st.text(st.sampled_from("ab cd 日本|-`/ "), max_size=120)


@given(TEXT, st.integers(20, 60))
def test_no_line_is_wider_and_nothing_is_lost(text: str, width: int) -> None:
    lines = filled(text, width, hard=True)
    assert all(columns(line) <= width for line in lines)
    assert "".join("".join(lines).split()).replace("|", "") == "".join(text.split()).replace("|", "")


@given(TEXT, st.integers(2, 60))
def test_a_cut_line_fits(text: str, width: int) -> None:
    assert columns(clipped(text, width)) <= width


def test_a_command_stays_whole_where_it_fits() -> None:
    line = "Raise the cap: `holdfast run --session-id k --budget 1.41`. Or answer: `holdfast deny itm_01`."
    assert filled(line, 50) == [
        "Raise the cap:",
        "`holdfast run --session-id k --budget 1.41`. Or",
        "answer: `holdfast deny itm_01`.",
    ]


def test_a_path_is_broken_behind_a_slash_and_stays_below_its_label() -> None:
    assert filled("workspace   /home/ann/.local/share/holdfast/workspaces/ses_1", 40) == [
        "workspace   /home/ann/.local/share/",
        "            holdfast/workspaces/ses_1",
    ]


def test_no_line_behind_a_bar_can_pass_for_one_of_holdfast() -> None:
    action = "    | " + "x" * 50 + " approve    itm_1"
    assert filled(action, 30) == ["    | " + "x" * 23, "    | " + "x" * 23, "    | xxxx approve    itm_1"]


def test_columns_of_a_table() -> None:
    assert table([("NAME", "COST"), ("日本", "$1.26")], [1]) == ["NAME   COST", "日本  $1.26"]

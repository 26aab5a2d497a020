"""The Seatbelt profile, against its golden text. Nobody has tried it on a Mac."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import UsageError
from holdfast.hands.seatbelt import SECRETS, profile

GOLDEN = Path(__file__).parent / "golden" / "seatbelt.sb"


def test_the_whole_profile() -> None:
    text = profile("/Users/a/work", "/private/tmp/s", "/Users/a", read_only=["/opt/x"], proxy_socket="/private/tmp/p/s")
    assert text == GOLDEN.read_text(), "if the change is meant, look at the difference and write the new file"


def test_denied_unless_allowed_and_no_network_without_a_proxy() -> None:
    text = profile("/w", "/s", "/Users/a")
    assert text.startswith("(version 1)\n(deny default)\n")
    assert text.endswith("(deny network*)\n")
    assert "network-outbound" not in text
    assert text.count("(") == text.count(")")
    reads, denied = text.index('(subpath "/w")'), text.index(f'(subpath "/Users/a/{SECRETS[0]}")')
    assert reads < denied, "the later rule wins"


def test_a_path_cannot_add_a_rule() -> None:
    text = profile('/w") (allow default) (literal "/x', "/s\\", "/Users/a")
    assert '(subpath "/w\\") (allow default) (literal \\"/x")' in text
    assert '(subpath "/s\\\\")' in text
    for bad in ("relative", "", "/a\n(allow default)"):
        with pytest.raises(UsageError, match="profile"):
            profile(bad, "/s", "/Users/a")

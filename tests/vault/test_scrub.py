"""No form of a secret comes through, however the stream is cut; what has none comes through as it is."""

from __future__ import annotations

import base64
import html
import json
import tracemalloc
import urllib.parse
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.egress.scrub import Forms, Scrubber
from holdfast.vault.base import Secret

VALUES = (
    "sk_live_51HxYz/AB+CD==",
    'p"a\\ss w/örd%41',
    "aaaaaaaab",
    "********!",
    "ab%41cd%zz\\u0041",
    "00\\b00\\¡",
)


def _base64(encode: Callable[[bytes], bytes], before: int) -> Callable[[str], bytes]:
    return lambda value: encode(b"u:x"[:before] + value.encode() + b"after")


def _escaped(value: str) -> bytes:
    return "".join(f"\\u{int.from_bytes(unit.encode('utf-16-be')):04X}" for unit in value).encode()


def _lines(text: bytes, end: bytes) -> bytes:
    return end.join(text[at : at + 5] for at in range(0, len(text), 5))


FORMS: dict[str, Callable[[str], bytes]] = {
    "plain": str.encode,
    **{f"base64 at {at}": _base64(base64.b64encode, at) for at in range(4)},
    **{f"urlsafe base64 at {at}": _base64(base64.urlsafe_b64encode, at) for at in range(4)},
    "base64 alone": lambda value: base64.b64encode(value.encode()),
    "base64 without padding": lambda value: base64.urlsafe_b64encode(value.encode()).rstrip(b"="),
    "hex": lambda value: value.encode().hex().encode(),
    "HEX": lambda value: value.encode().hex().upper().encode(),
    "url": lambda value: urllib.parse.quote(value, safe="").encode(),
    "url of a form": lambda value: urllib.parse.quote_plus(value).encode(),
    "url with slashes": lambda value: urllib.parse.quote(value).encode(),
    "url, all of it": lambda value: "".join(f"%{byte:02x}" for byte in value.encode()).encode(),
    "url, mixed case": lambda value: "".join(
        f"%{byte:02x}" if at % 2 else f"%{byte:02X}" for at, byte in enumerate(value.encode())
    ).encode(),
    "json": lambda value: json.dumps(value).encode()[1:-1],
    "json in UTF-8": lambda value: json.dumps(value, ensure_ascii=False).encode()[1:-1],
    "json with slashes": lambda value: json.dumps(value).replace("/", "\\/").encode()[1:-1],
    "json, all of it": _escaped,
    "json in json": lambda value: json.dumps(json.dumps(value)[1:-1]).encode()[1:-1],
    "base64 in lines": lambda value: _lines(base64.b64encode(b"x" + value.encode()), b"\n"),
    "base64 in lines of json": lambda value: _lines(base64.b64encode(value.encode()), b"\\r\\n"),
    "base64 in a url": lambda value: urllib.parse.quote(base64.b64encode(value.encode())).encode(),
    **{f"base32 base64-like at {at}": _base64(base64.b32encode, at) for at in range(4)},
    "hex with blanks": lambda value: value.encode().hex(" ").encode(),
    "hex with colons": lambda value: value.encode().hex(":").upper().encode(),
    "hex in lines": lambda value: _lines(value.encode().hex().encode(), b"\r\n\t"),
    "url twice": lambda value: "".join(f"%25{byte:02X}" for byte in value.encode()).encode(),
    "backslash x": lambda value: "".join(f"\\x{byte:02x}" for byte in value.encode()).encode(),
    "octal": lambda value: "".join(f"\\{byte:03o}" for byte in value.encode()).encode(),
    "entities": lambda value: "".join(f"&#{ord(char)};" for char in value).encode(),
    "entities in hex": lambda value: "".join(f"&#x{ord(char):X};" for char in value).encode(),
    "html": lambda value: html.escape(value).encode(),
    "UTF-16": lambda value: value.encode("utf-16-le"),
    "UTF-16, big end first": lambda value: value.encode("utf-16-be"),
}


@lru_cache
def _forms(value: str) -> Forms:
    return Forms([Secret(value)])


def _flow(value: str, data: bytes, cuts: list[int]) -> bytes:
    scrubber = Scrubber(_forms(value))
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return b"".join(scrubber.feed(data[a:b]) for a, b in pairwise(edges)) + scrubber.end()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", VALUES)
def test_a_form_is_taken_out_at_each_cut(form: str, value: str) -> None:
    shown = FORMS[form](value)
    data = b'{"got": "' + shown + b'", "n": 1}'
    half = len(shown) // 2
    core = shown[half - 4 : half + 4] if "base64" in form else shown
    for cut in range(len(data) + 1):
        out = _flow(value, data, [cut])
        assert len(out) == len(data)
        assert core not in out, (cut, out)
        assert (out[:9], out[-9:]) == (data[:9], data[-9:])
    assert core not in _flow(value, data, list(range(len(data))))


_values = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_categories=("C", "Z")), min_size=8, max_size=24
)


@given(
    value=_values,
    form=st.sampled_from(sorted(FORMS)),
    before=st.binary(max_size=40),
    cuts=st.lists(st.integers(0, 999)),
)
@settings(max_examples=300, deadline=None)
def test_no_form_survives_any_chunking(value: str, form: str, before: bytes, cuts: list[int]) -> None:
    shown = FORMS[form](value)
    data = before + shown + before
    out = _flow(value, data, cuts)
    assert len(out) == len(data)
    for other in FORMS.values():
        text = other(value)
        assert text not in out


_BEGINNINGS = (
    rb"\ % & &# &#x \u \u00 \x \U0000 %25 %4 &amp &l \0 \u{0 &#0 &#6 \\ %5c \% \x5c &#x5 %25%34 &amp;# &#92;"
).split()
_ENDS = rb"n 41 lt; 1 u0041 x41 quot; 5cn 2541 #65; / \ % & ; 0".split()
_escaping = st.text("n0u41x\"'\\%&;#ab/lt5cU{}amp+ é-_2", min_size=8, max_size=24)


@given(
    value=_escaping,
    form=st.sampled_from(sorted(FORMS)),
    before=st.lists(st.sampled_from(_BEGINNINGS), max_size=2).map(b"".join),
    after=st.lists(st.sampled_from(_ENDS), max_size=2).map(b"".join),
    cuts=st.lists(st.integers(0, 999), max_size=5),
)
@example(value="n000000'", form="html", before=b"\\", after=b"", cuts=[])
@example(value="n000000'", form="html", before=b"\\", after=b"", cuts=[12])
@example(value='n000000"', form="json", before=b"\\", after=b"", cuts=[])
@example(value="41abcd'ef", form="html", before=b"%", after=b"", cuts=[])
@example(value="#65;abcd'ef", form="html", before=b"&", after=b"", cuts=[1])
@example(value="'abcdef&", form="html", before=b"", after=b"lt;", cuts=[])
@example(value="'abcdef%", form="url", before=b"", after=b"41", cuts=[17])
@example(value="b{/#&x&4", form="hex", before=b"\\0", after=b"", cuts=[])
@example(value="x{c#b0\\&%4%41c0", form="backslash x", before=b"", after=b"", cuts=[])
@example(value='5c%+\\b0nb"', form="url, all of it", before=b"\\u{", after=b"", cuts=[1, 4, 14, 31])
@example(value='n-4pb\\"t', form="entities in hex", before=b"", after=b"", cuts=[])
@settings(max_examples=500, deadline=None)
def test_escapes_around_a_form_do_not_hide_it(
    value: str, form: str, before: bytes, after: bytes, cuts: list[int]
) -> None:
    """The first or last characters of the form, read with what is around it, are an escape of something else."""
    out = _flow(value, before + FORMS[form](value) + after, cuts)
    assert [name for name, other in FORMS.items() if other(value) in out] == []


@given(value=_values, data=st.binary(max_size=300), cuts=st.lists(st.integers(0, 999)))
@settings(max_examples=300, deadline=None)
def test_what_has_no_form_is_untouched(value: str, data: bytes, cuts: list[int]) -> None:
    if value.encode() not in data:
        assert _flow(value, data, cuts) == data


@given(
    value=_values,
    data=st.lists(
        st.sampled_from([b"%", b"\\", b"\\u00", b"4", b"1", b"a", b"%41", b"%4", b"\\/", b"*"]), max_size=200
    ),
    cuts=st.lists(st.integers(0, 999)),
)
@settings(max_examples=200, deadline=None)
def test_broken_escapes_are_untouched(value: str, data: list[bytes], cuts: list[int]) -> None:
    whole = b"".join(data)
    if set(value) - set("%\\u041a/*"):
        assert _flow(value, whole, cuts) == whole


def test_several_secrets_that_overlap_are_all_taken_out() -> None:
    forms = Forms([Secret("abcdefghij"), Secret("ghijklmnop"), Secret("defghijk")])
    data = b"<abcdefghijklmnop>"
    for cut in range(len(data)):
        scrubber = Scrubber(forms)
        out = scrubber.feed(data[:cut]) + scrubber.feed(data[cut:]) + scrubber.end()
        assert out == b"<****************>"
        assert scrubber.found >= 1


def test_what_cannot_begin_a_form_is_passed_on_at_once() -> None:
    scrubber = Scrubber(Forms([Secret("tok-12345678")]))
    assert scrubber.feed(b"data: 1\n\n") == b"data: 1\n\n"
    assert scrubber.feed(b"data: tok-1") == b"data: "
    assert scrubber.feed(b"!") == b"tok-1!"
    assert scrubber.end() == b""


def test_without_secrets_all_passes() -> None:
    scrubber = Scrubber(Forms([]))
    assert scrubber.feed(b"anything") + scrubber.end() == b"anything"


def test_memory_is_constant() -> None:
    forms, piece = Forms([Secret("tok-" + "%4" * 200)]), b"%4" * 8_192
    scrubber = Scrubber(forms)
    for _ in range(4):
        scrubber.feed(piece)
    tracemalloc.start()
    for _ in range(30):
        scrubber.feed(piece)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400_000


def test_forms_do_not_show_their_values() -> None:
    forms = Forms([Secret("tok-12345678")])
    assert "tok" not in repr(forms)
    assert forms.scrub(b"Set-Cookie: a=dG9rLTEyMzQ1Njc4") == b"Set-Cookie: a=****************"

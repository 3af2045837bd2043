"""Text as keys: the hash against the authors' values and the oracle, and what is shown of names."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import naive_names
from superhosts.core.columns.column import text_of
from superhosts.core.hashing import DEFAULT_KEY
from superhosts.core.pairs import TEXT, HostFormat
from superhosts.core.textkeys import TextFormat, hash_text, hash_texts, may_show_hash, number_in, shown_name, text_key
from superhosts.errors import UsageError

KEY = text_key(DEFAULT_KEY)
NUMBER = 0x0123456789ABCDEF0123456789ABCDEF
SHOWN = "#0123456789abcdef0123456789abcdef"


def test_the_hash_is_siphash_of_128_bits() -> None:
    """Values that the authors of SipHash published, for the key 00 01 … 0f and the messages 00 01 02 …"""
    key = tuple(np.uint64(int.from_bytes(bytes(range(start, start + 8)), "little")) for start in (0, 8))
    published = {0: "a3817f04ba25a8e66df67214c7550293", 1: "da87c1d86b99af44347659119b22fc45"}
    for length, digest in published.items():
        assert hash_text(bytes(range(length)), key).to_bytes(16, "little").hex() == digest


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_hashes_are_those_of_the_oracle(texts: list[bytes]) -> None:
    words = naive_names.key_of(DEFAULT_KEY)
    found = [int(high) << 64 | int(low) for high, low in hash_texts(text_of(texts), KEY)]
    assert found == [naive_names.siphash(text, *words) for text in texts]


def test_many_hashes_by_several_threads() -> None:
    texts = [f"name {i}" for i in range(100_000)]
    together = hash_texts(text_of(texts), KEY, threads=3)
    assert (together == hash_texts(text_of(texts), KEY)).all()
    assert len(np.unique(together, axis=0)) == len(texts)


def test_another_key_gives_other_hashes() -> None:
    assert hash_text("alice", KEY) != hash_text("alice", text_key(b"another secret"))


@pytest.mark.parametrize("text", ["", "alice", "grüße", "#", "#12", "a…#12", "…"])
def test_ordinary_names_are_shown_as_they_are(text: str) -> None:
    assert shown_name(text.encode(), False, NUMBER) == text
    assert number_in(text) is None


@pytest.mark.parametrize("text", [SHOWN, f"a…{SHOWN}", f"…{SHOWN}", f"two\nlines…{SHOWN}"])
def test_a_name_that_looks_like_a_hash_is_shown_with_its_own(text: str) -> None:
    shown = shown_name(text.encode(), False, 1)
    assert shown == f"{text}…#{1:032x}"
    assert number_in(shown) == 1
    assert may_show_hash(text_of([text, "alice", ""])).tolist() == [True, False, False]


def test_bytes_that_are_no_utf8_are_escaped() -> None:
    assert shown_name(b"caf\xe9", False, NUMBER) == f"caf\\xe9…{SHOWN}"


def test_a_shortened_name_ends_with_a_whole_character() -> None:
    raw = ("x" + "ü" * 150).encode()[:201]
    shown = shown_name(raw, True, NUMBER)
    assert shown == f"x{'ü' * 99}…{SHOWN}"
    assert number_in(shown) == NUMBER
    beginning = shown[: -len(SHOWN) - 1]
    assert shown_name(beginning.encode(), True, NUMBER) == shown  # as after a file was read


class TestTextFormat:
    def test_it_equals_any_format_of_text_keys(self) -> None:
        assert TextFormat(KEY) == TEXT == TextFormat() == HostFormat(0, 128)
        assert hash(TextFormat(KEY)) == hash(TEXT)

    def test_names_and_hashes(self) -> None:
        format = TextFormat(KEY)
        assert format.to_number("alice") == hash_text("alice", KEY)
        assert format.to_number(SHOWN) == NUMBER
        assert format.to_number(f"long…{SHOWN}") == NUMBER
        assert format.to_number(SHOWN.encode()) == hash_text(SHOWN, KEY)  # Bytes are always a name.
        assert format.to_host(NUMBER) == SHOWN

    @pytest.mark.parametrize("host", [42, None, 1.5])
    def test_other_things_are_refused(self, host: object) -> None:
        with pytest.raises(UsageError, match=r'is not text: keys="text" takes str or bytes'):
            TextFormat(KEY).to_number(host)

    def test_without_a_key_it_knows_the_names_that_it_has(self) -> None:
        hosts = hash_texts(text_of(["alice", "bob"]), KEY)
        format = TextFormat(None, hosts, ["alice", None])
        assert format.to_number("alice") == hash_text("alice", KEY)
        assert format.to_host(hash_text("alice", KEY)) == "alice"
        assert format.knows(hash_text("alice", KEY))
        assert not format.knows(hash_text("bob", KEY))
        with pytest.raises(UsageError, match="'carol' is not one of these hosts"):
            format.to_number("carol")

    def test_a_copy_has_the_same_names(self) -> None:
        format = TextFormat(None, hash_texts(text_of(["alice"]), KEY), ["alice"])
        twin = pickle.loads(pickle.dumps(format))
        assert twin == format
        assert twin.names == format.names

    def test_united_formats_know_the_names_of_both(self) -> None:
        formats = [TextFormat(None, hash_texts(text_of([name]), KEY), [name]) for name in ("alice", "bob")]
        assert set(formats[0].united(formats).names.values()) == {"alice", "bob"}

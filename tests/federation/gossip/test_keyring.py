"""The keyring: its rules, and that what one key of it sealed comes back, and nothing else does."""

from __future__ import annotations

import base64
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from federation.gossip.keyring import (
    KEYS_MAX,
    SEALED_OVERHEAD,
    VERSION_PADDED,
    VERSION_PLAIN,
    KeyRefused,
    Keyring,
    key_text,
    parse_key,
)

A, B, C = bytes(16), b"b" * 24, b"c" * 32

keys = st.sampled_from((16, 24, 32)).flatmap(lambda size: st.binary(min_size=size, max_size=size))
rings = st.lists(keys, min_size=1, max_size=KEYS_MAX, unique=True)
versions = st.sampled_from((VERSION_PADDED, VERSION_PLAIN))
blobs = st.binary(max_size=200)


def ring(*keys: bytes) -> Keyring:
    return Keyring(keys, Random(1))


def test_operations() -> None:
    keyring = ring(A)
    assert keyring.install(B)
    assert not keyring.install(B)
    assert keyring.keys == (A, B)
    assert not keyring.use(A)
    assert keyring.use(B)
    assert keyring.keys == (B, A)
    assert keyring.install(C)
    assert keyring.remove(A)
    assert not keyring.remove(A)
    assert keyring.keys == (B, C)


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        (lambda keyring: keyring.use(C), ("not in the keyring", "install")),
        (lambda keyring: keyring.remove(A), ("primary", "use another")),
        (lambda keyring: keyring.install(b"x" * 17), ("17 bytes", "16, 24 or 32")),
        (lambda keyring: [keyring.install(bytes((n,)) * 32) for n in range(KEYS_MAX)], (str(KEYS_MAX), "remove")),
        (lambda keyring: Keyring([], Random(1)), ("no key",)),
    ],
)
def test_what_is_refused(operation: object, words: tuple[str, ...]) -> None:
    keyring = ring(A, B)
    with pytest.raises(KeyRefused) as refused:
        operation(keyring)  # type: ignore[operator]
    assert all(word in str(refused.value) for word in words)
    assert keyring.keys[:2] == (A, B)


@given(st.lists(st.tuples(st.sampled_from(("install", "use", "remove")), st.integers(0, 3)), max_size=30))
def test_the_ring_is_as_a_list_with_the_primary_first(steps: list[tuple[str, int]]) -> None:
    some = [bytes((number,)) * 16 for number in range(4)]
    keyring, model = ring(some[0]), [some[0]]
    for name, number in steps:
        key = some[number]
        refused = (name == "use" and key not in model) or (name == "remove" and key == model[0])
        try:
            getattr(keyring, name)(key)
            assert not refused
        except KeyRefused:
            assert refused
            continue
        if name == "install" and key not in model:
            model.append(key)
        elif name == "use":
            model.insert(0, model.pop(model.index(key)))
        elif name == "remove" and key in model:
            model.remove(key)
        assert list(keyring.keys) == model


@given(keys)
def test_keys_as_text(key: bytes) -> None:
    assert parse_key(key_text(key)) == key
    assert base64.b64encode(key).decode() == key_text(key)


@pytest.mark.parametrize(("text", "word"), [("", "0 bytes"), ("!", "base64"), ("YWJj", "3 bytes"), ("ÿ", "base64")])
def test_texts_that_are_no_keys(text: str, word: str) -> None:
    with pytest.raises(KeyRefused, match=word):
        parse_key(text)


@given(blobs, blobs, rings, versions, st.integers(0, 1 << 32), st.data())
def test_what_any_member_sealed_comes_back(
    data: bytes, associated: bytes, ring_keys: list[bytes], version: int, seed: int, chosen: st.DataObject
) -> None:
    """Members of one cluster have the same keys, in any order."""
    sender = Keyring(chosen.draw(st.permutations(ring_keys)), Random(seed))
    sealed = sender.seal(data, associated, version)
    assert Keyring(ring_keys, Random(0)).unseal(sealed, associated) == data
    padding = 16 - len(data) % 16 if version == VERSION_PADDED else 0
    assert len(sealed) == SEALED_OVERHEAD + padding + len(data)


@given(blobs, blobs, keys, versions, st.data())
def test_a_flipped_bit_is_refused(data: bytes, label: bytes, key: bytes, version: int, chosen: st.DataObject) -> None:
    keyring = ring(key)
    sealed = bytearray(keyring.seal(data, label, version))
    bit = chosen.draw(st.integers(0, 8 * len(sealed) - 1))
    sealed[bit // 8] ^= 1 << bit % 8
    opened = keyring.unseal(bytes(sealed), label)
    # The version itself is not authenticated, as in memberlist: it says how much padding what was sealed has.
    assert opened is None or bit == 0


@given(blobs, blobs, keys, versions)
def test_a_cut_or_longer_block_and_other_associated_data_are_refused(
    data: bytes, label: bytes, key: bytes, version: int
) -> None:
    keyring = ring(key)
    sealed = keyring.seal(data, label, version)
    assert [size for size in range(len(sealed)) if keyring.unseal(sealed[:size], label) is not None] == []
    assert keyring.unseal(sealed + b"\0", label) is None
    assert keyring.unseal(sealed, label + b"x") is None
    assert ring(bytes((key[0] ^ 1,)) + key[1:]).unseal(sealed, label) is None


def test_a_key_that_is_removed_opens_nothing_more() -> None:
    keyring = ring(A, B)
    sealed = ring(B).seal(b"x", b"")
    assert keyring.unseal(sealed, b"") == b"x"
    keyring.remove(B)
    assert keyring.unseal(sealed, b"") is None


def test_each_block_has_a_nonce_of_its_own() -> None:
    keyring = ring(A)
    assert len({keyring.seal(b"x", b"")[1:13] for _ in range(1000)}) == 1000

"""Sentences for people: a test says what they must name, and leaves the words to the product."""

from __future__ import annotations

from collections.abc import Sequence


def check_named(text: str, parts: Sequence[str]) -> None:
    """`text` names all `parts`: the key, the value, the reason."""
    missing = [part for part in parts if part not in text]
    assert not missing, f"{missing} not named by: {text}"


def check_each_named(texts: Sequence[str], parts: Sequence[Sequence[str]]) -> None:
    """There is one text for each of `parts`, in this order, that names all of it."""
    assert len(texts) == len(parts), texts
    for text, wanted in zip(texts, parts, strict=True):
        check_named(text, wanted)

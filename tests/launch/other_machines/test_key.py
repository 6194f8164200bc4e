"""The key that is printed: what it carries, and what is said of one that was mistyped."""

import pytest

from paceline.core.errors import UsageError
from paceline.launch.other_machines.key import JoinKey

KEY = JoinKey(bytes(range(10)), bytes(range(100, 113)))


def test_a_key_is_forty_letters_in_groups_and_comes_back_as_it_was() -> None:
    text = KEY.text()
    assert [len(group) for group in text.split("-")] == [8, 8, 8, 8, 8]
    assert JoinKey.read(text) == KEY


def test_capitals_spaces_and_hyphens_do_not_matter() -> None:
    assert JoinKey.read(f"  {KEY.text().upper().replace('-', ' ')}\n") == KEY


def test_two_keys_of_one_certificate_have_other_secrets() -> None:
    assert JoinKey.new(b"certificate").secret != JoinKey.new(b"certificate").secret
    assert JoinKey.new(b"certificate").fingerprint == JoinKey.new(b"certificate").fingerprint


def test_a_key_that_is_cut_off_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--key has 39 letters and digits; a key has 40. Copy the whole key"):
        JoinKey.read(KEY.text()[:-1])


def test_letters_that_no_key_has_are_named() -> None:
    with pytest.raises(
        UsageError, match="--key holds '0', '8'; a key has only the letters a to z and the digits 2 to 7"
    ):
        JoinKey.read("08" + KEY.text()[2:])


@pytest.mark.parametrize("place", [0, 11, 43])
def test_one_wrong_letter_is_noticed(place: int) -> None:
    text = KEY.text()
    other = "b" if text[place] == "a" else "a"
    with pytest.raises(UsageError, match="has a wrong letter, or two letters that are swapped"):
        JoinKey.read(text[:place] + other + text[place + 1 :])

"""How failed logins slow down the next ones, and whom they do not."""

from __future__ import annotations

import pytest

from broker.auth.failed_logins import ADDRESS_SECONDS, ENTRIES_MAX, USER_SECONDS, FailedLogins

NOW = 1000.0


def test_a_user_name_is_slowed_down_after_its_failures() -> None:
    """Afterwards one login in USER_SECONDS is checked."""
    failed = FailedLogins(5, 0)
    for _ in range(5):
        assert failed.wait("a", "u", NOW) == 0
        failed.failed("a", "u", NOW)
    assert failed.wait("a", "u", NOW) == pytest.approx(USER_SECONDS)
    assert failed.wait("a", "other", NOW) == 0
    assert failed.wait("b", "u", NOW) == 0, "from elsewhere the user gets in"
    later = NOW + USER_SECONDS
    assert failed.wait("a", "u", later) == 0
    failed.failed("a", "u", later)
    assert failed.wait("a", "u", later) == pytest.approx(USER_SECONDS)
    assert failed.wait("a", "u", later + 5 * USER_SECONDS) == 0


def test_a_good_login_forgets_the_failures_of_the_user() -> None:
    failed = FailedLogins(2, 0)
    failed.failed("a", "u", NOW)
    failed.failed("a", "u", NOW)
    assert failed.wait("a", "u", NOW) > 0
    failed.succeeded("a", "u")
    assert failed.wait("a", "u", NOW) == 0


def test_an_address_is_slowed_down_but_not_its_known_users() -> None:
    """One router can have many clients behind it."""
    failed = FailedLogins(5, 100)
    failed.succeeded("a", "known")
    for number in range(100):
        failed.failed("a", f"guess{number}", NOW)
    assert failed.wait("a", "next", NOW) == pytest.approx(ADDRESS_SECONDS)
    assert failed.wait("a", "known", NOW) == 0
    assert failed.wait("b", "next", NOW) == 0
    assert failed.wait("a", "next", NOW + 1) == 0


def test_clients_of_unix_sockets_have_no_address_to_count() -> None:
    failed = FailedLogins(5, 10)
    for number in range(50):
        failed.failed("", f"guess{number}", NOW)
    assert failed.wait("", "next", NOW) == 0


def test_who_is_locked_out_is_who_would_wait() -> None:
    failed = FailedLogins(2, 3)
    long = "n" * 1000
    for address, username in [
        ("a", "u"),
        ("a", "u"),
        ("a", "other name"),
        ("b", long),
        ("b", long),
        ("", "unix"),
        ("", "unix"),
    ]:
        failed.failed(address, username, NOW)
    found = {(address, name): seconds for address, name, seconds in failed.locked_out(NOW)}
    names = {("a", "u"), ("", "unix"), ("a", "")}
    assert names < found.keys()
    (hashed,) = found.keys() - names
    assert (hashed[0], len(hashed[1])) == ("b", 32)
    for (address, name), seconds in found.items():
        if name != hashed[1]:
            assert seconds == pytest.approx(failed.wait(address, name or "somebody", NOW))
    assert list(failed.locked_out(NOW + 100)) == []
    assert list(FailedLogins(0, 0).locked_out(NOW)) == []


def test_zero_is_no_limit() -> None:
    failed = FailedLogins(0, 0)
    for _ in range(1000):
        failed.failed("a", "u", NOW)
    assert failed.wait("a", "u", NOW) == 0
    assert failed.entries() == 0


def test_the_tables_are_bounded() -> None:
    """Whatever names and addresses strangers give; the oldest entries are forgotten."""
    failed = FailedLogins(1, 1)
    for number in range(ENTRIES_MAX + 100):
        failed.failed(str(number), "long name" * 1000, NOW)
        failed.succeeded(str(number), "other")
    assert failed.entries() == 3 * ENTRIES_MAX
    assert failed.wait(str(ENTRIES_MAX + 99), "long name" * 1000, NOW) > 0
    assert failed.wait("0", "long name" * 1000, NOW) == 0


def test_a_user_who_has_logged_in_from_an_address_has_turns_of_its_own() -> None:
    failed = FailedLogins(5, 50)
    assert failed.turns_of("10.0.0.1", "bob") == failed.turns_of("10.0.0.1", "eve")
    failed.succeeded("10.0.0.1", "bob")
    assert failed.turns_of("10.0.0.1", "bob") != failed.turns_of("10.0.0.1", "eve")
    assert failed.turns_of("10.0.0.2", "bob") == failed.turns_of("10.0.0.2", "eve")

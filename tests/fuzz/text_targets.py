"""Files of operators, and the header of a proxy."""

from __future__ import annotations

import contextlib
from typing import Final

import yaml

from broker.api.tokens import read_tokens, write_tokens
from broker.auth.accounts import read_accounts, write_accounts
from broker.auth.acl_file import AclFault, parse_acl_file
from broker.auth.acl_filters import PUBLISH, READ
from broker.auth.password_hash import PLAIN
from broker.config.loader import load_bytes
from broker.config.printer import effective_yaml
from broker.config.yaml_entries import EntriesFault
from broker.server.layers import LayerError
from broker.server.proxy_header import SIGNATURE, ProxyHeaderReader
from fuzz_target import TESTS, Target, rng_of
from mutation import pieces_of

YAML_TEXTS: Final = (
    b"&a |*a |<<: |- |: |{|}|[|]|, |\n|\n  |\t|'|\"|!!binary |!!int |null|~|true|0x1f|1h|100MB|-1|.inf|>|---\n"
)
YAML_PIECES: Final = tuple(YAML_TEXTS.split(b"|"))


class ConfigurationTarget(Target):
    """The file of a node. What loads can be printed, and what is printed is YAML; what does not has faults."""

    def __init__(self) -> None:
        seeds = [path.read_bytes() for path in sorted((TESTS.parent / "configs").glob("*.yml"))]
        lines = {line.strip() for seed in seeds for line in seed.splitlines() if line.strip()[:1] != b"#"}
        super().__init__([small(seed) for seed in seeds], (*YAML_PIECES, *sorted(lines)))

    def run(self, data: bytes) -> None:
        result = load_bytes(data, "file.yml", allow_missing=True)
        assert (result.settings is None) == bool(result.faults)
        for fault in (*result.faults, *result.warnings):
            assert str(fault).isprintable(), f"{fault!r} would change a terminal"
        if result.settings is not None:
            assert isinstance(yaml.load(effective_yaml(result.settings), Loader), dict)


Loader: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def small(data: bytes) -> bytes:
    """Without comments, so that changes meet values."""
    return b"\n".join(line for line in data.splitlines() if line.strip() and line.strip()[:1] != b"#") + b"\n"


ACL: Final = b"""\
topic read news/#
topic deny news/secret
user alice
topic readwrite home/alice/#
topic both
user bob the builder
topic read $SYS/#
pattern readwrite dev/%c/#
pattern read mail/%u
pattern deny dev/+/firmware
"""


class AclTarget(Target):
    """An acl_file. Only AclFault is raised; the rules of a good file judge any topic."""

    def __init__(self) -> None:
        super().__init__([ACL], (*ACL.splitlines(keepends=True), b"user ", b"topic ", b"%u", b"%c", b"+", b"/#", b"\n"))

    def run(self, data: bytes) -> None:
        try:
            rules = parse_acl_file(data).rules
        except AclFault:
            return
        for username, client_id in (("alice", "c"), ("", "+"), ("bob the builder", "a/b")):
            for topic in (b"news/secret", b"dev/c/x", b"$SYS/x", b"mail/alice", b"/"):
                rules.judge(topic, READ, username, client_id)
                rules.judge(topic, PUBLISH, username, client_id)
            for topic_filter in (b"#", b"dev/+/x", b"$SYS/#", b"+/alice"):
                rules.may_read_any(topic_filter, username, client_id)


ACCOUNTS: Final = b"""\
- username: root
  password: rootpassword
- username: 007
  password: 12345
- {username: "m\xc3\xbcller", password: 'it''s', comment: kept by nobody}
- username: scram
  password: x
  scram: "SCRAM-SHA-256$4096:MDEyMzQ1Njc4OWFiY2RlZg==$MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=:\
MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
"""
TOKENS: Final = b"""\
- name: robot
  role: write
  hash: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
"""


class AccountTarget(Target):
    """Files of accounts and of tokens. Only EntriesFault is raised; what was read is written and read again the same."""

    def __init__(self) -> None:
        super().__init__(
            [ACCOUNTS, TOKENS], (*YAML_PIECES, b"username", b"password", b"scram", b"role", b"$argon2id$v=19$")
        )

    def run(self, data: bytes) -> None:
        with contextlib.suppress(EntriesFault):
            accounts = read_accounts(data, PLAIN)
            assert read_accounts(write_accounts(accounts.values()), PLAIN) == accounts
        with contextlib.suppress(EntriesFault):
            tokens = read_tokens(data)
            assert read_tokens(write_tokens(tokens.values())) == tokens


PROXY_SEEDS: Final = [
    b"PROXY TCP4 192.0.2.1 192.0.2.2 40000 1883\r\n\x10\x0c",
    b"PROXY TCP6 2001:db8::1 2001:db8::2 40000 1883\r\nrest",
    b"PROXY UNKNOWN\r\n",
    SIGNATURE + b"\x21\x11\x00\x0c\xc0\x00\x02\x01\xc0\x00\x02\x02\x9c\x40\x07\x5brest",
    SIGNATURE + b"\x21\x21\x00\x24" + bytes(range(36)) + b"rest",
    SIGNATURE + b"\x21\x11\x00\x10\xc0\x00\x02\x01\xc0\x00\x02\x02\x9c\x40\x07\x5b\x04\x00\x01x",
    SIGNATURE + b"\x20\x00\x00\x00",
]


class ProxyTarget(Target):
    """The beginning of a connection. Only LayerError is raised, and the cuts change nothing but its text."""

    def __init__(self) -> None:
        super().__init__(PROXY_SEEDS, (b"\r\n", b" ", b"::", b"0", b"65536", SIGNATURE))

    def run(self, data: bytes) -> None:
        whole = self._read([data])
        assert self._read(pieces_of(rng_of(data), data)) == whole

    def _read(self, pieces: list[bytes]) -> tuple[bool, bytes | None, tuple[str, int] | None]:
        """Whether it was refused, the bytes behind the header, the address."""
        reader = ProxyHeaderReader()
        rest: bytes | None = None
        try:
            for piece in pieces:
                rest = reader.receive_data(piece) if rest is None else rest + piece
        except LayerError:
            return True, None, None
        return False, rest, reader.address

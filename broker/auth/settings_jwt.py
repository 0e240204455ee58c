"""The keys of `plugins.auth.jwt`."""

from dataclasses import dataclass
from typing import Final

from broker.config.setting import Choice, Duration, Sequence, Text, extension

RELATIVE: Final = "a relative path starts at the configuration file"


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Tokens (JSON Web Tokens) as passwords. The connection ends when the token expires."""

    algorithms: tuple[str, ...] = extension(
        (),
        "Algorithms of the signatures: HS256, RS256, ES256. Empty: a password is never a token.",
        Sequence(Choice(("HS256", "RS256", "ES256"))),
    )
    secret: str = extension(
        "", "The secret of HS256, at least 32 bytes.", Text("of at least thirty-two characters"), secret=True
    )
    public_key_file: str = extension(
        "",
        f"PEM file with the public keys of RS256 and ES256; {RELATIVE}. Read again at a reload.",
        Text("/etc/gmqtt/tokens.pem"),
    )
    jwks_file: str = extension(
        "", f"JSON file with a JWK Set; {RELATIVE}. Read again at a reload.", Text("/etc/gmqtt/jwks.json")
    )
    issuer: str = extension("", "The `iss` that a token must have. Empty: any.", Text("https://id.example.com"))
    audience: str = extension("", "The `aud` that a token must have. Empty: tokens that have none.", Text("mqtt"))
    username_claim: str = extension(
        "sub",
        "The claim that is the user name. CONNECT has the same user name, or none.",
        Text("sub", 100, is_name=True),
    )
    acl_claim: str = extension(
        "acl",
        "The claim with the topics of the user, an object with lists of topic filters: `pub`, `sub`, `all`. A token "
        "without it says nothing about topics.",
        Text("acl", 100, is_name=True),
    )
    role_claim: str = extension(
        "role",
        "The claim with the role of the user: with the text `link` its clients may be links of other domains, with "
        "`link:DOMAIN` of this one. Other texts say nothing.",
        Text("role", 100, is_name=True),
    )
    leeway: float = extension(0.0, "How far the clock of the issuer may be off.", Duration(0.0, "10s"))


NO_TOKENS: Final = JwtSettings()

"""The keys of `plugins.auth.jwt`."""

from dataclasses import dataclass
from typing import Annotated, Final

from broker.config.setting import Choice, Duration, Sequence, Setting, Source, Text

RELATIVE: Final = "a relative path starts at the configuration file"


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Tokens (JSON Web Tokens) as passwords. The connection ends when the token expires."""

    algorithms: Annotated[
        tuple[str, ...],
        Setting(
            "Algorithms of the signatures: HS256, RS256, ES256. Empty: a password is never a token.",
            Sequence(Choice(("HS256", "RS256", "ES256"))),
            source=Source.EXTENSION,
        ),
    ] = ()
    secret: Annotated[
        str,
        Setting(
            "The secret of HS256, at least 32 bytes.",
            Text("of at least thirty-two characters"),
            secret=True,
            source=Source.EXTENSION,
        ),
    ] = ""
    public_key_file: Annotated[
        str,
        Setting(
            f"PEM file with the public keys of RS256 and ES256; {RELATIVE}. Read again at a reload.",
            Text("/etc/gmqtt/tokens.pem"),
            source=Source.EXTENSION,
        ),
    ] = ""
    jwks_file: Annotated[
        str,
        Setting(
            f"JSON file with a JWK Set; {RELATIVE}. Read again at a reload.",
            Text("/etc/gmqtt/jwks.json"),
            source=Source.EXTENSION,
        ),
    ] = ""
    issuer: Annotated[
        str,
        Setting(
            "The `iss` that a token must have. Empty: any.", Text("https://id.example.com"), source=Source.EXTENSION
        ),
    ] = ""
    audience: Annotated[
        str,
        Setting(
            "The `aud` that a token must have. Empty: tokens that have none.", Text("mqtt"), source=Source.EXTENSION
        ),
    ] = ""
    username_claim: Annotated[
        str,
        Setting(
            "The claim that is the user name. CONNECT has the same user name, or none.",
            Text("sub", 100, is_name=True),
            source=Source.EXTENSION,
        ),
    ] = "sub"
    acl_claim: Annotated[
        str,
        Setting(
            "The claim with the topics of the user, an object with lists of topic filters: `pub`, `sub`, `all`. A token "
            "without it says nothing about topics.",
            Text("acl", 100, is_name=True),
            source=Source.EXTENSION,
        ),
    ] = "acl"
    role_claim: Annotated[
        str,
        Setting(
            "The claim with the role of the user: with the text `link` its clients may be links of other domains, with "
            "`link:DOMAIN` of this one. Other texts say nothing.",
            Text("role", 100, is_name=True),
            source=Source.EXTENSION,
        ),
    ] = "role"
    leeway: Annotated[
        float,
        Setting("How far the clock of the issuer may be off.", Duration(0.0, "10s"), source=Source.EXTENSION),
    ] = 0.0


NO_TOKENS: Final = JwtSettings()

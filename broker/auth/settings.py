"""The keys of `plugins.auth`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final

from broker.config.setting import Choice, Flag, Setting, Source, Text, Whole

HASHES: Final = ("plain", "md5", "sha256", "bcrypt", "argon2id")
SELF_NAMING: Final = ("bcrypt", "argon2id")
RELATIVE: Final = "a relative path starts at the configuration file"


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Who may connect."""

    hash: Annotated[
        str,
        Setting(
            "Hash of the passwords in the file that do not name theirs. argon2id and bcrypt name themselves and are read "
            "whatever stands here.",
            Choice(HASHES),
        ),
    ] = "md5"
    password_file: Annotated[
        str,
        Setting(
            f"File of the accounts: a YAML list of `{{username, password}}`; {RELATIVE}. `gmqttd passwd` writes it. Empty: no "
            "passwords.",
            Text("./gmqtt_password.yml"),
        ),
    ] = "./gmqtt_password.yml"
    new_hash: Annotated[
        str,
        Setting(
            "Hash of new passwords that the API sets. The Go broker reads the one that its `hash` names.",
            Choice(HASHES),
            "argon2id takes about 20 ms and 19 MiB for each login, bcrypt about 50 ms. The others protect no password once "
            "the file is read by somebody else.",
            source=Source.EXTENSION,
        ),
    ] = "argon2id"
    allow_anonymous: Annotated[
        bool,
        Setting(
            "Whether clients without a user name are let in, on listeners that do not say so themselves.",
            Flag(),
            source=Source.EXTENSION,
        ),
    ] = False
    use_identity_as_username: Annotated[
        bool,
        Setting(
            "Whether the common name of a verified client certificate is the user name. User name and password of CONNECT are "
            "not looked at then.",
            Flag(),
            source=Source.EXTENSION,
        ),
    ] = False
    scram: Annotated[
        bool,
        Setting(
            "Whether clients of MQTT 5 may log in with SCRAM-SHA-256, and new passwords get its keys.",
            Flag(),
            "The keys are easier to guess from than argon2id, for somebody who reads the file.",
            source=Source.EXTENSION,
        ),
    ] = False
    acl_file: Annotated[
        str,
        Setting(
            "File of the topics that clients may publish to and read, in the syntax of mosquitto's `acl_file`; "
            f"{RELATIVE}. Read again at a reload. Empty: all topics.",
            Text("./acl"),
            source=Source.EXTENSION,
        ),
    ] = ""
    threads: Annotated[
        int,
        Setting(
            "Number of passwords that are checked at the same time.",
            Whole(0, 64, 2),
            "Each takes a CPU.",
            default_text="one less than the CPUs, 1 to 4",
            source=Source.EXTENSION,
        ),
    ] = 0
    failures_per_user: Annotated[
        int,
        Setting(
            "Failed logins of a user name from one address after which further ones are refused unchecked (0x9F), one in 10 s "
            "excepted. 0: no limit.",
            Whole(0, 1000, 5),
            source=Source.EXTENSION,
        ),
    ] = 5
    failures_per_address: Annotated[
        int,
        Setting(
            "As failures_per_user, of all user names from one address, two in a second excepted. Users who have logged in from "
            "there are not refused.",
            Whole(0, 100_000, 100),
            source=Source.EXTENSION,
        ),
    ] = 100

    def broken_rules(self) -> Iterator[tuple[str, str]]:
        """Every broken rule between the keys, as (key, text)."""
        if self.new_hash not in SELF_NAMING and self.new_hash != self.hash:
            yield (
                "new_hash",
                f"{self.new_hash} does not name itself in the file, so it must be the same as hash, which is {self.hash}",
            )

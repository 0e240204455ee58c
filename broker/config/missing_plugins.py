"""Plugins of the Go broker that are not supported yet. Their keys are read and checked, so that its files load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final

from broker.config.setting import Choice, Setting, Text


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Users and passwords."""

    hash: Annotated[
        str, Setting("How passwords are kept in the file.", Choice(("plain", "md5", "sha256", "bcrypt")))
    ] = "md5"
    password_file: Annotated[
        str,
        Setting(
            "File with a YAML list of `{username, password}`; a relative path starts at the configuration file.",
            Text("./gmqtt_password.yml"),
        ),
    ] = "./gmqtt_password.yml"


@dataclass(frozen=True, slots=True)
class MissingPlugin:
    """`instead`: what happens without the plugin. With `is_security` a node that is to run it does not start without it."""

    settings: type[Any]
    instead: str
    is_security: bool


MISSING_PLUGINS: Final = {
    "auth": MissingPlugin(AuthSettings, "every client is let in without a password", True),
}

"""Accounts and topic rules for brokers that let nobody in unknown: the same ones for each broker.

There are ACCOUNTS accounts with a few rules each, in the syntax of mosquitto's acl_file, which this broker reads too. LOGIN is
the account of the load generators. Passwords are kept as one round of SHA-2, the cheapest hash that both brokers have.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Final

ACCOUNTS: Final = 1_000
LOGIN: Final = ("device-0500", "password-0500")
LOGIN_ARGUMENTS: Final = f"--user {LOGIN[0]} --password {LOGIN[1]}"
SALT: Final = b"0123456789ab"

COMMON_RULES: Final = """\
topic read news/#
topic read $SYS/broker/uptime
topic deny firmware/+/signing-key
topic read firmware/#
topic readwrite idle/#
pattern readwrite devices/%u/#
pattern read commands/%u/+
pattern write status/%c
pattern deny devices/%u/secrets/#
"""
RULES: Final = """\
user {name}
topic write measurements/{name}/+
topic read areas/{area:02d}/#
topic readwrite groups/{group:03d}/#
topic deny groups/{group:03d}/admin
"""
LOAD_RULES: Final = """\
topic readwrite load/#
topic readwrite many/#
"""


def write_accounts(folder: Path) -> dict[str, Path]:
    """The files: `acl` for both brokers, `passwords` for this one, `mosquitto_passwords`."""
    names = [f"device-{number:04d}" for number in range(ACCOUNTS)]
    rules, ours, theirs = [COMMON_RULES], [], []
    for number, name in enumerate(names):
        password = name.replace("device", "password").encode()
        rules.append(RULES.format(name=name, area=number % 100, group=number // 10))
        if name == LOGIN[0]:
            rules.append(LOAD_RULES)
        ours.append(f"- {{username: {name}, password: {hashlib.sha256(password).hexdigest()}}}\n")
        salted = base64.b64encode(hashlib.sha512(password + SALT).digest()).decode()
        theirs.append(f"{name}:$6${base64.b64encode(SALT).decode()}${salted}\n")
    files = {"acl": "\n".join(rules), "passwords": "".join(ours), "mosquitto_passwords": "".join(theirs)}
    for file, text in files.items():
        (folder / file).write_text(text)
    return {file: folder / file for file in files}

"""The plugin `auth` with real clients: accounts, anonymous clients, SCRAM, wrong passwords by the thousand, bad files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import jwt
import pytest
import yaml

from api_calls import Rest
from auth_plugin import connack_of, passwd, port_of, with_auth
from broker.codec.packets import Auth, ConnAck, Connect, SubAck, Subscribe, SubscribeFilter
from broker.codec.properties import AUTHENTICATION_DATA, AUTHENTICATION_METHOD
from broker.codec.reason_codes import NOT_AUTHORIZED
from certificates import Authority
from node_process import LANE_WORKERS
from scram_client import final_message
from waiting import eventually

if TYPE_CHECKING:
    from broker.server.lifecycle import Server
    from mosquitto_process import Mosquitto
    from mqtt_client import Clients
    from node_process import Nodes

    StartServer = Callable[[dict[str, Any]], Awaitable[Server]]

REFUSED = "ot authori"  # mosquitto_pub has two spellings
# As the Go broker writes them, for the password "secret" of user "root".
GO_PASSWORDS = {
    "plain": "secret",
    "md5": "5ebe2294ecd0e0f08eab7690d2a6ee69",
    "sha256": "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b",
    "bcrypt": "$2a$04$qvuItV.yLSRxeuoOFejmQeftBOX13YIf.8eg1RAG2R3f8t69EDrmG",
}


@pytest.mark.parametrize("kind", list(GO_PASSWORDS))
async def test_the_password_file_of_a_go_broker_works_unchanged(
    nodes: Nodes, mosquitto: Mosquitto, tmp_path: Path, kind: str
) -> None:
    """Its relative path starts at the configuration file. Without a user name nobody is let in."""
    text = f"# accounts\n- username: root\n  password: {GO_PASSWORDS[kind]}\n"
    (tmp_path / "gmqtt_password.yml").write_text(text)
    hashing = {} if kind == "md5" else {"hash": kind}
    node = await nodes.start(with_auth(failures_per_address=0, failures_per_user=0, **hashing))
    for version in ("mqttv31", "mqttv311", "mqttv5") if kind == "md5" else ("mqttv5",):
        await mosquitto.pub(node.port, "-t", "t", "-m", "x", "-u", "root", "-P", "secret", version=version)
        for arguments in (("-u", "root", "-P", "Secret"), ("-u", "root"), ("-u", "nobody", "-P", "secret"), ()):
            await mosquitto.pub(node.port, "-t", "t", "-m", "x", *arguments, version=version, refused=REFUSED)
    assert (tmp_path / "gmqtt_password.yml").read_text() == text


async def test_accounts_of_gmqttd_passwd(nodes: Nodes, mosquitto: Mosquitto, tmp_path: Path) -> None:
    """Made, changed and deleted while the node runs, which reads them at SIGHUP."""
    file = str(tmp_path / "accounts.yml")
    assert passwd("-c", "-b", file, "alice", "quartz").returncode == 0
    node = await nodes.start(with_auth(password_file=file))
    await mosquitto.pub(node.port, "-t", "t", "-m", "x", "-u", "alice", "-P", "quartz")
    assert passwd(file, "bob", stdin="of bob\n").stdout == "added bob\n"
    assert passwd("-b", "-H", "bcrypt", file, "alice", "basalt").stdout == "changed the password of alice\n"
    os.kill(node.pid, signal.SIGHUP)
    await eventually(lambda: node.log().count("accounts read") == 2 * LANE_WORKERS, "the accounts are read again")
    await mosquitto.pub(node.port, "-t", "t", "-m", "x", "-u", "alice", "-P", "basalt")
    await mosquitto.pub(node.port, "-t", "t", "-m", "x", "-u", "bob", "-P", "of bob")
    await mosquitto.pub(node.port, "-t", "t", "-m", "x", "-u", "alice", "-P", "quartz", refused=REFUSED)
    assert passwd("-D", file, "bob").returncode == 0
    os.kill(node.pid, signal.SIGHUP)
    await eventually(lambda: node.log().count("accounts read") == 3 * LANE_WORKERS, "the accounts are read again")
    await mosquitto.pub(node.port, "-t", "t", "-m", "x", "-u", "bob", "-P", "of bob", refused=REFUSED)
    for secret in ("quartz", "basalt", "of bob", "argon2id", "$2b$"):
        assert secret not in node.log()


async def test_a_damaged_account_file_keeps_the_node_from_starting(
    nodes: Nodes, mosquitto: Mosquitto, tmp_path: Path
) -> None:
    """The fault has file and line. A node that runs keeps its accounts."""
    file = tmp_path / "gmqtt_password.yml"
    good = f"- username: root\n  password: {GO_PASSWORDS['md5']}\n"
    file.write_text(f"{good}- username: secret\n  password: [secret]\n")
    node = nodes.make(with_auth())
    node.spawn()
    assert await node.wait_ended() == 1
    assert "plugins.auth.password_file" in node.log()
    assert "gmqtt_password.yml: line 4: password is not a text" in node.log()
    file.write_text(good)
    await node.start()
    file.write_text("- username: [")
    os.kill(node.pid, signal.SIGHUP)
    await node.logged("gmqtt_password.yml: line 2")
    await mosquitto.pub(node.port, "-t", "t", "-m", "x", "-u", "root", "-P", "secret")


async def test_a_missing_account_file_keeps_the_accounts(
    start_server: StartServer, clients: Clients, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a reload, and when the API changes an account: a new file would have that one only."""
    file = tmp_path / "accounts.yml"
    file.write_text("- {username: root, password: secret}")
    config = with_auth(hash="plain", new_hash="plain", password_file=str(file))
    server = await start_server({**config, "api": {"http": [{"address": "127.0.0.1:0"}]}})
    client = await clients.open(port_of(server))
    assert (await connack_of(client, "root", b"secret")).reason_code == 0
    file.unlink()
    await server.reload(server.settings)
    printed = capsys.readouterr()
    assert "plugins.auth.password_file" in printed.out + printed.err
    assert str(file) in printed.out + printed.err
    await client.ping()
    assert server.api is not None
    async with aiohttp.ClientSession() as session:
        rest = Rest(session, f"http://{server.api.http_addresses[0]}")
        assert (await rest.call("POST", "/v1/accounts/bob", {"password": "new"}))[0] == 500
    assert not file.exists()
    assert (await connack_of(await clients.open(port_of(server)), "root", b"secret")).reason_code == 0


@pytest.mark.parametrize(
    ("allowed", "username", "password", "code"),
    [
        (True, None, None, 0),
        (True, "", None, 0),
        (True, None, b"x", 0),
        (True, "nobody", None, NOT_AUTHORIZED),
        (True, "nobody", b"x", NOT_AUTHORIZED),
        (False, None, None, NOT_AUTHORIZED),
        (False, "", b"", NOT_AUTHORIZED),
        (False, "root", None, NOT_AUTHORIZED),
        (False, "root", b"", NOT_AUTHORIZED),
        (True, "root", b"", NOT_AUTHORIZED),
        (False, "root", b"secret", 0),
    ],
)
async def test_anonymous_clients(
    start_server: StartServer,
    clients: Clients,
    tmp_path: Path,
    allowed: bool,
    username: str | None,
    password: bytes | None,
    code: int,
) -> None:
    """They have no user name. Who has one needs its password."""
    file = tmp_path / "accounts.yml"
    file.write_text("- {username: root, password: secret}")
    server = await start_server(with_auth(hash="plain", password_file=str(file), allow_anonymous=allowed))
    connack = await connack_of(await clients.open(port_of(server)), username, password)
    assert connack.reason_code == code


def scram(data: bytes) -> dict[int, Any]:
    return {AUTHENTICATION_METHOD: "SCRAM-SHA-256", AUTHENTICATION_DATA: data}


async def test_scram_over_the_accounts(start_server: StartServer, clients: Clients, tmp_path: Path) -> None:
    """bob has no keys. The challenges of all look alike."""
    file = str(tmp_path / "accounts.yml")
    assert passwd("-c", "-b", "--scram", file, "alice", "right").returncode == 0
    assert passwd("-b", file, "bob", "right").returncode == 0
    server = await start_server(with_auth(password_file=file, scram=True))
    for user, password, code in (
        ("alice", "wrong", NOT_AUTHORIZED),
        ("bob", "right", NOT_AUTHORIZED),
        ("nobody", "x", NOT_AUTHORIZED),
        ("alice", "right", 0),
    ):
        client = await clients.open(port_of(server))
        first = f"n,,n={user},r=client".encode()
        client.send(Connect("c", properties=scram(first)))
        challenge = (await client.answer(Auth)).properties[AUTHENTICATION_DATA]
        assert isinstance(challenge, bytes)
        assert b"i=15000" in challenge
        client.send(Auth(0x18, scram(final_message(first, challenge, password))))
        assert (await client.answer(ConnAck)).reason_code == code, user
    assert server.broker.sessions["c"].username == "alice"
    client.send(Auth(0x19, scram(first)))
    challenge = (await client.answer(Auth)).properties[AUTHENTICATION_DATA]
    assert isinstance(challenge, bytes)
    client.send(Auth(0x18, scram(final_message(first, challenge, password))))
    assert (await client.answer(Auth)).reason_code == 0


async def test_scram_is_off_without_its_setting(start_server: StartServer, clients: Clients, tmp_path: Path) -> None:
    server = await start_server(with_auth(password_file=str(tmp_path / "none.yml")))
    client = await clients.open(port_of(server))
    client.send(Connect("c", properties=scram(b"n,,n=u,r=x")))
    assert (await client.answer(ConnAck)).reason_code == 0x8C


SECRET = "a secret of at least thirty-two bytes"


@pytest.mark.parametrize("version", [4, 5])
async def test_a_connection_ends_with_its_token(start_server: StartServer, clients: Clients, version: int) -> None:
    """What the token says about topics holds; a publish to another topic is refused."""
    server = await start_server(with_auth(password_file="", jwt={"algorithms": ["HS256"], "secret": SECRET}))

    def token(seconds: int) -> bytes:
        claims = {"sub": "alice", "exp": int(time.time()) + seconds, "acl": {"all": ["mine/#"]}}
        return jwt.encode(claims, SECRET, "HS256").encode()

    client = await clients.open(port_of(server), version)
    connack = await connack_of(client, "alice", token(3600))
    assert connack.reason_code == 0
    assert server.broker.sessions["c"].username == "alice"
    client.connack = connack
    client.send(Subscribe(1, [SubscribeFilter(b"mine/#", 0), SubscribeFilter(b"other", 0)]))
    assert (await client.answer(SubAck)).reason_codes == [0, NOT_AUTHORIZED if version == 5 else 0x80]
    await client.publish("mine/a", b"x")
    assert (await client.message()).payload == b"x"
    refused, code = -1, NOT_AUTHORIZED
    while code == NOT_AUTHORIZED:  # where a login takes longer than the token holds
        refused += 1
        client = await clients.open(port_of(server), version)
        code = (await connack_of(client, "alice", token(2 << refused))).reason_code
    assert code == 0
    await client.wait_closed()
    assert (client.disconnect is not None) == (version == 5)
    if client.disconnect is not None:
        assert client.disconnect.reason_code == NOT_AUTHORIZED
    again = await clients.open(port_of(server), version)
    assert (await connack_of(again, "alice", token(-1))).reason_code == NOT_AUTHORIZED
    assert server.plugins[0].refused_input()["tokens_refused"] == refused + 1


async def test_no_secret_is_printed(nodes: Nodes, tmp_path: Path) -> None:
    """By check, in the log, or in a fault."""
    secrets = {
        "jwt": {"algorithms": ["HS256"], "secret": SECRET},
        "webhook": {"url": "http://127.0.0.1:1", "token": "tok"},
    }
    node = nodes.make(with_auth(password_file=str(tmp_path / "none.yml"), **secrets))
    node.spawn()
    await eventually(node.serves, "the node serves")
    printed = node.command("check")
    assert printed.returncode == 0
    assert "secret: '***'" in printed.stdout
    assert "token: '***'" in printed.stdout
    for text in (printed.stdout, printed.stderr, node.log()):
        assert SECRET not in text
        assert "tok\n" not in text
    for wrong in (
        {"jwt": {"algorithms": ["HS256"], "secret": "short" + "\0"}},
        {"jwt": {"algorithms": ["RS256"], "secret": SECRET}},
        {"webhook": {"url": "https://me:hidden@example.com/"}},
    ):
        node.config["plugins"]["auth"] = wrong
        node.config_path.write_text(yaml.safe_dump(node.config))
        printed = node.command("check")
        assert printed.returncode == 2
        for text in (printed.stdout, printed.stderr):
            assert SECRET not in text
            assert "short" not in text
            assert "hidden" not in text


async def test_a_client_certificate_names_the_user(nodes: Nodes, mosquitto: Mosquitto, tmp_path: Path) -> None:
    """Whatever user name and password are sent beside it. Over plain TCP the same name needs a password."""
    authority = Authority(tmp_path / "certificates")
    own, device = authority.pair("localhost"), authority.pair("device-7")
    tls = {"cacert": authority.cacert, "cert": own.cert, "key": own.key, "verify": True}
    plain, encrypted = nodes.free_port(), nodes.free_port()
    node = await nodes.start(
        {
            **with_auth(password_file="", use_identity_as_username=True),
            "listeners": [{"address": f"127.0.0.1:{plain}"}, {"address": f"127.0.0.1:{encrypted}", "tls": tls}],
        }
    )
    shown = ("--cafile", authority.cacert, "--cert", device.cert, "--key", device.key)
    message = ("-t", "t", "-m", "x")
    for version in ("mqttv311", "mqttv5"):
        await mosquitto.pub(encrypted, *message, *shown, version=version)
        await mosquitto.pub(encrypted, *message, *shown, "-u", "root", "-P", "x", version=version)
        await node.logged("username=device-7")
        assert "username=root" not in node.log()
        await mosquitto.pub(plain, *message, "-u", "device-7", "-P", "x", version=version, refused=REFUSED)
        await mosquitto.pub(plain, *message, "-u", "device-7", version=version, refused=REFUSED)


TERMINAL = """
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.executable, [sys.executable, "-m", "broker", "passwd", "-c", sys.argv[1], "alice"])
shown = b""
answers = [b"typed\\n", b"typed\\n"]
while True:
    try:
        data = os.read(terminal, 4096)
    except OSError:
        break
    if not data:
        break
    shown += data
    if answers and shown.endswith(b": "):  # a prompt, which getpass writes after it has emptied the input
        os.write(terminal, answers.pop(0))
_, status = os.waitpid(pid, 0)
sys.stdout.write(shown.decode())
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_the_password_is_asked_for_without_echo(tmp_path: Path) -> None:
    """Twice, at a terminal."""
    file = tmp_path / "accounts.yml"
    done = subprocess.run(
        [sys.executable, "-c", TERMINAL, str(file)],
        env={**os.environ, "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "added alice"
    assert "Reenter password" in done.stdout
    assert "typed" not in done.stdout
    assert "alice" in file.read_text()

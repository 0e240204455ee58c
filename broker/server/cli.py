"""The command `gmqttd`.

Each command imports what it needs when it runs: `gmqttd check` loads neither an event loop nor gRPC.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

import click

from broker.server.command_fault import EXIT_BAD_CONFIGURATION, EXIT_FAILED, CommandFault

if TYPE_CHECKING:
    from broker.api.token_command import TokenFile
    from broker.config.loader import Warning
    from broker.config.settings import Settings

HOME_CONFIG_FILE: Final = "gmqtt.yml"
GO_CONFIG_FILE: Final = "/etc/gmqtt/gmqttd.yml"  # the default of the Go broker
OUTPUT_FAULTS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

Command = TypeVar("Command", bound=Callable[..., Any])


class Commands(click.Group):
    """The group of commands, with a sentence instead of a traceback where standard output cannot be written."""

    def main(self, *args: Any, **options: Any) -> Any:
        _open_standard_descriptors()
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.errno not in OUTPUT_FAULTS or error.filename is not None:
                raise
            CommandFault(f"standard output cannot be written: {error.strerror}").show()
            sys.exit(EXIT_FAILED)


def _open_standard_descriptors() -> None:
    """Open the null device under each of 0, 1 and 2 that is closed. A socket would get that number otherwise, and libuv
    aborts the process when it closes one of the three."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def default_config_file() -> str:
    """The file of a command without -c: the first of the two default files that exists. Exits when neither does."""
    home = os.path.join(os.path.expanduser("~"), HOME_CONFIG_FILE)
    for file in (home, GO_CONFIG_FILE):
        if os.path.exists(file):
            return file
    click.echo(f"gmqttd: neither {home} nor {GO_CONFIG_FILE} exists; name a configuration file with -c FILE", err=True)
    sys.exit(EXIT_BAD_CONFIGURATION)


def _print_version(context: click.Context, _option: click.Parameter, is_set: bool) -> None:
    from broker.server.form import version_text

    if is_set and not context.resilient_parsing:
        click.echo(f"gmqttd {version_text()}")
        context.exit()


def _chosen_file(context: click.Context, _option: click.Parameter, file: str | None) -> str | None:
    """-c of the command, else -c before the command, else a default file."""
    if context.resilient_parsing:  # the shell asks for completions
        return file
    return file or context.find_root().params.get("config_file") or default_config_file()


def config_option(callback: Callable[..., str | None] | None) -> Callable[[Command], Command]:
    return click.option(
        "-c",
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(readable=False),  # the loader says why a file cannot be read
        callback=callback,
        help=f"The configuration file.  [default: ~/{HOME_CONFIG_FILE}, else {GO_CONFIG_FILE}]",
    )


allow_missing_option = click.option(
    "--allow-missing",
    is_flag=True,
    help="Warn of plugins that the file asks for and that are not installed, instead of refusing.",
)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print the version, and exit.",
)
@config_option(None)
def main(config_file: str | None) -> None:
    """An MQTT broker whose nodes act as one."""


@main.command()
@config_option(_chosen_file)
@allow_missing_option
def start(config_file: str, allow_missing: bool) -> None:
    """Run a node until SIGTERM or SIGINT. SIGHUP reads the file again."""
    settings, warnings = _load_or_exit(config_file, allow_missing)
    from broker.config.rules import on_every_interface
    from broker.server.form import log_form
    from broker.server.logging import get_logger, setup_logging

    setup_logging(settings.log)
    log_form(get_logger("server"), on_every_interface(settings))
    log = get_logger("config")
    for warning in warnings:
        log.warning(str(warning))
    from broker.server.start import start_node

    start_node(settings, config_file, allow_missing)


@main.command()
@config_option(_chosen_file)
@allow_missing_option
def check(config_file: str, allow_missing: bool) -> None:
    """Print the effective configuration, or every fault (exit status 2). Files that it names and that would stop a start are
    faults too (exit status 1)."""
    settings, warnings = _load_or_exit(config_file, allow_missing)
    _print_warnings(warnings)
    from broker.config.printer import effective_yaml
    from broker.config.rules import on_every_interface
    from broker.server.named_files import folder_of, start_warnings, unusable_files
    from broker.server.start_error import StartError
    from broker.server.worker_folders import worker_warnings

    folder = folder_of(config_file)
    _print_warnings(worker_warnings(settings))
    faults = list(unusable_files(settings, folder))
    try:
        _print_warnings(start_warnings(settings, folder))
    except StartError as error:
        faults.append(str(error))
    if opened := on_every_interface(settings):
        click.echo(f"gmqttd: on every interface: {', '.join(opened)}", err=True)
    for text in faults:
        click.echo(f"gmqttd: {text}", err=True)
    click.echo(effective_yaml(settings), nl=False)
    if faults:
        sys.exit(EXIT_FAILED)


@main.command()
@config_option(_chosen_file)
@allow_missing_option
def reload(config_file: str, allow_missing: bool) -> None:
    """Tell the running node to read its file again."""
    settings, _ = _load_or_exit(config_file, allow_missing)
    from broker.server.pid_file import PidFileError, read_pid

    if not settings.pid_file:
        raise CommandFault(
            f"{config_file}: pid_file is not set, so the node cannot be found; set it and restart the node"
        )
    import signal

    try:
        pid = read_pid(settings.pid_file)
        os.kill(pid, signal.SIGHUP)
    except PidFileError as error:
        raise CommandFault(str(error)) from None
    except ProcessLookupError:
        raise CommandFault(f"{settings.pid_file}: the node has just ended") from None
    except PermissionError:
        raise CommandFault(f"{settings.pid_file}: the node with process id {pid} belongs to another user") from None
    click.echo(f"told the node with process id {pid} to read its configuration again; its log tells the result")


@main.group()
def token() -> None:
    """Tokens of the API, in api.token_file of the configuration. A running node reads the file at a reload."""


@token.command("create")
@config_option(_chosen_file)
@click.option("--role", type=click.Choice(("read", "write", "admin")), required=True, help="What the token may do.")
@click.option("--name", default="", help="Name of the token.  [default: the role and a number]")
@click.option("--expires", metavar="TIME", help="When the token expires, from now: 90d or 12h.  [default: never]")
def token_create(config_file: str, role: str, name: str, expires: str | None) -> None:
    """Make a token and print it. It is shown this once: the file has its hash."""
    from broker.api.token_command import parse_expiry

    expires_in = None if expires is None else parse_expiry(expires)
    click.echo(_token_file(config_file).create(name, role, expires_in))


@token.command("list")
@config_option(_chosen_file)
def token_list(config_file: str) -> None:
    """Print name, role, day, and the end of each token."""
    for each in _token_file(config_file).tokens():
        end = f"  expires {each.expires.isoformat()}" if each.expires is not None else ""
        click.echo(f"{each.name}  {each.role.name.lower()}  {each.created}{end}")


@token.command("delete")
@config_option(_chosen_file)
@click.argument("name")
def token_delete(config_file: str, name: str) -> None:
    """Delete a token by its name."""
    _token_file(config_file).delete(name)


def _token_file(config_file: str) -> TokenFile:
    settings, _ = _load_or_exit(config_file, allow_missing=True)
    from broker.api.token_command import TokenFile

    file = settings.api.token_file
    if not file:
        raise CommandFault(
            f"{config_file}: api.token_file is not set, so no call needs a token; for example /etc/gmqtt/tokens.yml"
        )
    from broker.server.named_files import folder_of, path_in

    return TokenFile(path_in(folder_of(config_file), file))


@main.command()
@click.option("--client", "client_id", metavar="ID", help="The client with this client id, now or when it connects.")
@click.option("--topic", "topic_filter", metavar="FILTER", help="Messages whose topic matches.")
@click.option("--addr", "remote_addr", metavar="ADDR", help="Clients at this IP address or IP:PORT.")
@click.option("--seconds", type=click.IntRange(1, 3600), default=60, show_default=True)
@click.option(
    "--api", "url", metavar="URL", default="http://127.0.0.1:8083", show_default=True, help="The node's REST API."
)
@click.option("--token", envvar="GMQTTD_TOKEN", show_envvar=True, default="", help="Of the role admin.")
@click.option(
    "--cacert", metavar="FILE", help="Certificates that https URLs are checked with.  [default: the system's]"
)
def trace(seconds: int, url: str, token: str, cacert: str | None, **wanted: str | None) -> None:
    """Print the packets of a client, a topic filter or an address as they come. Ctrl-C ends it."""
    selection = {name: value for name, value in wanted.items() if value}
    if len(selection) != 1:
        raise click.UsageError("one of --client, --topic and --addr is needed")
    from broker.api.trace_command import TraceApi, follow

    try:
        for line in follow(TraceApi(url, token, cacert), selection, seconds):
            click.echo(line)
    except KeyboardInterrupt:
        pass  # the way to end it


@main.command()
def defaults() -> None:
    """Print a configuration file with every key, its meaning and its default, those of installed plugins too."""
    from broker.config.document import default_yaml

    click.echo(default_yaml(), nl=False)


@main.command()
def version() -> None:
    """Print the version, the form that runs and why, and where the files are that came with it."""
    from broker.server.form import shared_folder, version_text

    click.echo(f"gmqttd {version_text()}")
    click.echo(f"configurations, systemd unit, documentation: {shared_folder()}")


@main.command()
@click.option("-c", "create", is_flag=True, help="Make the file; it must not exist yet.")
@click.option(
    "-b", "batch", is_flag=True, help="The password is the last argument. Other users of the machine may see it."
)
@click.option("-D", "delete", is_flag=True, help="Delete the user.")
@click.option(
    "-H",
    "kind",
    metavar="HASH",
    type=click.Choice(("argon2id", "bcrypt")),
    default="argon2id",
    show_default=True,
    help="argon2id or bcrypt. The Go broker reads bcrypt.",
)
@click.option("--scram", is_flag=True, help="Also keep the keys with which the user logs in by SCRAM-SHA-256.")
@click.option(
    "--role",
    metavar="ROLE",
    help="link: clients of the account may be links of other domains. link:DOMAIN: of this one only, and they go on with its "
    "sessions. none: they may not. Without it the role stays.",
)
@click.argument("file", type=click.Path(readable=False))
@click.argument("username", metavar="USER")
@click.argument("password", required=False)
def passwd(
    create: bool,
    batch: bool,
    delete: bool,
    kind: str,
    scram: bool,
    role: str | None,
    file: str,
    username: str,
    password: str | None,
) -> None:
    """Make an account, or set its password, in the password_file of the plugin auth.

    The password is asked for, or is the first line of standard input. A running node reads the file at a reload.
    """
    if delete and (create or batch or scram or role):
        raise click.UsageError("-D goes with none of -c, -b, --scram and --role")
    if batch != (password is not None):
        raise click.UsageError("-b and a password as last argument belong together")
    from broker.auth.accounts import link_domain_of
    from broker.auth.passwd import delete_account, read_password, set_password

    if role not in (None, "none") and link_domain_of(role) is None:
        raise click.UsageError(f'--role is "{role}", may be link, link:DOMAIN or none')

    if delete:
        delete_account(file, username)
        click.echo(f"deleted {username}")
    else:
        wanted = "" if role == "none" else role
        is_new = set_password(file, username, read_password(password), kind, scram, create, wanted)
        click.echo(f"{'added' if is_new else 'changed the password of'} {username}")


@main.group()
def cert() -> None:
    """Certificates by which the nodes of a federation trust each other (plugins.federation.tls)."""


folder_option = click.option(
    "--dir", "folder", metavar="FOLDER", default=".", show_default=True, help="Where the files are."
)
replace_option = click.option("--force", "replaces", is_flag=True, help="Replace files that exist.")


@cert.command("create-ca")
@folder_option
@click.option("--name", default="gmqttd nodes", show_default=True, help="Name of the authority.")
@click.option("--days", type=click.IntRange(1, 36_500), default=3_650, show_default=True, help="How long it is valid.")
@replace_option
def cert_create_ca(folder: str, name: str, days: int, replaces: bool) -> None:
    """Make an authority: ca.pem for every node, and ca.key, which signs their certificates and stays where it is."""
    from broker.server.cert_command import create_ca

    click.echo("wrote " + ", ".join(create_ca(folder, name, days, replaces)))


@cert.command("create-node")
@folder_option
@click.option(
    "--host",
    "hosts",
    metavar="HOST",
    multiple=True,
    help="A further DNS name, which the node may have as its name, too, or an IP address. Repeatable.",
)
@click.option("--days", type=click.IntRange(1, 36_500), default=365, show_default=True, help="How long it is valid.")
@replace_option
@click.argument("name")
def cert_create_node(folder: str, name: str, hosts: tuple[str, ...], days: int, replaces: bool) -> None:
    """Make the certificate NAME.pem and the key NAME.key of the node whose node_name is NAME, signed by ca.key."""
    from broker.server.cert_command import create_node

    click.echo("wrote " + ", ".join(create_node(folder, name, hosts, days, replaces)))


@cert.command("show")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
def cert_show(files: tuple[str, ...]) -> None:
    """Print the names and the days left of certificates. Exit status 1 when one of them is not valid now."""
    from broker.server.cert_command import show

    is_valid = True
    for file in files:
        for found in show(file):
            click.echo(file)
            for what, text in found.lines:
                click.echo(f"  {what}: {text}")
            is_valid = is_valid and found.is_valid
    if not is_valid:
        sys.exit(EXIT_FAILED)


@main.command()
def keygen() -> None:
    """Print a new key for the gossip: 32 random bytes in base64, as `serf keygen` does."""
    import base64
    import secrets

    click.echo(base64.b64encode(secrets.token_bytes(32)).decode())


@main.group()
def store() -> None:
    """Look after the store of a node that does not run."""


@store.command("check")
@config_option(_chosen_file)
def store_check(config_file: str) -> None:
    """Read all records. Exit status 1 when one is damaged."""
    from broker.store.offline import check as check_store

    counts, faults = _with_store(config_file, check_store)
    for fault in faults:
        click.echo(fault, err=True)
    total = sum(counts.values())
    click.echo(f"{total} good records" + "".join(f", {count} of kind {kind}" for kind, count in sorted(counts.items())))
    if faults:
        sys.exit(EXIT_FAILED)


@store.command("export")
@config_option(_chosen_file)
def store_export(config_file: str) -> None:
    """Write all records to standard output, as lines of JSON."""
    from broker.store.offline import export

    def run(settings: Settings, config_folder: str) -> None:
        for line in export(settings, config_folder):
            click.echo(line)

    _with_store(config_file, run)


@store.command("import")
@config_option(_chosen_file)
@click.option("--replace", is_flag=True, help="Import in place of the records that the store has.")
@click.argument("file", type=click.File("r", encoding="utf-8"))
def store_import(config_file: str, replace: bool, file: TextIO) -> None:
    """Write the lines of an export, from FILE or "-", to the store: all or nothing."""
    from broker.store.offline import import_

    count = _with_store(config_file, lambda settings, folder: import_(settings, folder, file, replace))
    click.echo(f"{count} records imported")


@store.command("compact")
@config_option(_chosen_file)
def store_compact(config_file: str) -> None:
    """Give back the space of deleted records."""
    from broker.store.offline import compact

    _with_store(config_file, compact)


@store.command("recover")
@config_option(_chosen_file)
def store_recover(config_file: str) -> None:
    """Keep what is readable of a damaged file, as a new store. The damaged file is set aside."""
    from broker.store.recovery import recover

    found = _with_store(config_file, recover)
    click.echo(
        f"{found.kept} records kept; {found.damaged} damaged, or without one that they refer to; {found.gaps} places of the "
        f"file could not be read. The damaged file is {found.aside}"
    )


def _with_store(config_file: str, work: Callable[[Settings, str], Any]) -> Any:
    """work(settings, folder of the file), or one line about what is wrong with the store."""
    settings, _ = _load_or_exit(config_file, True)
    from broker.server.named_files import folder_of
    from broker.store.store import StoreFault

    try:
        return work(settings, folder_of(config_file))
    except StoreFault as fault:
        raise CommandFault(str(fault)) from None


def _load_or_exit(config_file: str, allow_missing: bool) -> tuple[Settings, list[Warning]]:
    from broker.config.loader import load

    result = load(config_file, allow_missing)
    if result.settings is None:
        _print_warnings(result.warnings)
        for fault in result.faults:
            click.echo(str(fault), err=True)
        sys.exit(EXIT_BAD_CONFIGURATION)
    return result.settings, result.warnings


def _print_warnings(warnings: Iterable[Warning | str]) -> None:
    for warning in warnings:
        click.echo(f"warning: {warning}", err=True)

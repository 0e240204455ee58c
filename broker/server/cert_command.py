"""`gmqttd cert`: makes an authority and the certificates of nodes, and shows certificates."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from broker.server.command_fault import CommandFault
from broker.server.private_file import PrivateFile

CA_CERT: Final = "ca.pem"
CA_KEY: Final = "ca.key"
CA_NAME: Final = "ca"
FILE_BYTES_MAX: Final = 1 << 20
COMMON_NAME_CHARS_MAX: Final = 64  # X.509
NAME_BYTES_MAX: Final = 128  # of node_name
CLOCK_DIFFERENCE: Final = timedelta(minutes=5)  # between the machines that make and check a certificate
CERT_MODE: Final = 0o644


@dataclass(frozen=True, slots=True)
class Shown:
    """The answer of `show` about one certificate, as (what, text); `is_valid` now."""

    lines: list[tuple[str, str]]
    is_valid: bool


def create_ca(folder: str, name: str, days: int, replaces: bool) -> list[str]:
    """Make the key and the certificate of an authority. Returns their paths. Raises CommandFault."""
    paths = _new_paths(folder, CA_CERT, CA_KEY, replaces)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = _builder(subject, subject, key.public_key(), days)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_key_usage(is_authority=True), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    _write(paths, builder.sign(key, hashes.SHA256()), key, replaces)
    return list(paths)


def create_node(folder: str, name: str, hosts: Sequence[str], days: int, replaces: bool) -> list[str]:
    """Make the key and the certificate of a node, signed by the authority in the folder. `hosts` are further names and IP
    addresses. Returns the paths. Raises CommandFault."""
    if not name or os.sep in name or name.startswith(".") or name == CA_NAME or len(name.encode()) > NAME_BYTES_MAX:
        raise CommandFault(
            f'"{name}" cannot be the name of a node and of its files: 1 to {NAME_BYTES_MAX} bytes without "/", '
            f'not "{CA_NAME}", and no dot in front'
        )
    names = [_host(name, is_name=True), *(_host(host) for host in hosts)]
    authority, authority_key = _read_authority(folder)
    left = (authority.not_valid_after_utc - datetime.now(UTC)).days
    if days > left:
        raise CommandFault(f"{os.path.join(folder, CA_CERT)} is valid for {left} days more; give --days {left} or less")
    paths = _new_paths(folder, f"{name}.pem", f"{name}.key", replaces)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), authority.subject, key.public_key(), days)
    builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    builder = builder.add_extension(_key_usage(is_authority=False), critical=True)
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    builder = builder.add_extension(issuer, critical=False)
    _write(paths, builder.sign(authority_key, hashes.SHA256()), key, replaces)
    return list(paths)


def show(path: str) -> Iterator[Shown]:
    """Yield each certificate of a file. Raises CommandFault."""
    try:
        found = x509.load_pem_x509_certificates(_read(path))
    except ValueError:
        raise CommandFault(f"{path} is not a PEM file of certificates") from None
    now = datetime.now(UTC)
    for certificate in found:
        yield _shown(certificate, now)


def _shown(certificate: x509.Certificate, now: datetime) -> Shown:
    names: list[str] = []
    addresses: list[str] = []
    is_authority = False
    for extension in certificate.extensions:
        value = extension.value
        if isinstance(value, x509.SubjectAlternativeName):
            names = value.get_values_for_type(x509.DNSName)
            addresses = [str(address) for address in value.get_values_for_type(x509.IPAddress)]
        elif isinstance(value, x509.BasicConstraints):
            is_authority = value.ca
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    is_valid = begin <= now <= end
    if now > end:
        state = f"EXPIRED {(now - end).days} days ago"
    elif now < begin:
        state = "NOT YET VALID"
    else:
        state = f"{(end - now).days} days left"
    lines = [("authority", certificate.subject.rfc4514_string())] if is_authority else []
    if not is_authority:
        lines += [("node", ", ".join(names) or "none: it has no DNS name"), ("of the authority", _issuer(certificate))]
    if addresses:
        lines.append(("addresses", ", ".join(addresses)))
    lines.append(("valid", f"{begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, {state}"))
    lines.append(("SHA-256", certificate.fingerprint(hashes.SHA256()).hex(":")))
    return Shown(lines, is_valid)


def _issuer(certificate: x509.Certificate) -> str:
    return certificate.issuer.rfc4514_string()


def _name(common_name: str) -> x509.Name:
    try:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name[:COMMON_NAME_CHARS_MAX])])
    except ValueError as error:
        raise CommandFault(f'"{common_name}" cannot be the name in a certificate: {error}') from None


def _host(text: str, is_name: bool = False) -> x509.GeneralName:
    """A name or an address for a certificate. `is_name`: what looks like an address is a name, too."""
    if not is_name:
        try:
            return x509.IPAddress(ipaddress.ip_address(text))
        except ValueError:
            pass
    if not text or not text.isascii() or not text.isprintable():
        raise CommandFault(f'"{text}" cannot be a DNS name in a certificate: it has printable ASCII only')
    return x509.DNSName(text)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_DIFFERENCE)
        .not_valid_after(now + timedelta(days=days))
    )


def _key_usage(is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _read_authority(folder: str) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    cert_path, key_path = os.path.join(folder, CA_CERT), os.path.join(folder, CA_KEY)
    hint = "`gmqttd cert create-ca` makes an authority, --dir names its folder"
    certificate_data, key_data = _read(cert_path, hint), _read(key_path, hint)
    try:
        certificate = x509.load_pem_x509_certificate(certificate_data)
    except ValueError:
        raise CommandFault(f"{cert_path} is not a PEM file of a certificate") from None
    try:
        key = serialization.load_pem_private_key(key_data, None)
    except (ValueError, TypeError):
        raise CommandFault(f"{key_path} is not a PEM file of a key without a password") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key():
        raise CommandFault(f"{key_path} is not the key of {cert_path}")
    return certificate, key


def _read(path: str, hint: str = "") -> bytes:
    try:
        return PrivateFile(path).read(FILE_BYTES_MAX, may_be_missing=False)
    except OSError as error:
        raise CommandFault(f"{path} cannot be read: {error.strerror or error}{f'; {hint}' if hint else ''}") from None


def _new_paths(folder: str, cert: str, key: str, replaces: bool) -> tuple[str, str]:
    """The paths of a certificate and its key. Raises CommandFault where one of them exists."""
    paths = os.path.normpath(os.path.join(folder, cert)), os.path.normpath(os.path.join(folder, key))
    for path in paths:
        if os.path.lexists(path) and not replaces:
            raise CommandFault(f"{path} exists already; --force replaces it and its key or certificate")
    return paths


def _write(
    paths: tuple[str, str], certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey, replaces: bool
) -> None:
    """Write both files, each as a whole: the key first, with mode 0600."""
    cert_path, key_path = paths
    encoding = serialization.Encoding.PEM
    key_data = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    cert_data = certificate.public_bytes(encoding)
    for path, data in ((key_path, key_data), (cert_path, cert_data)):

        def content(path: str = path, data: bytes = data) -> bytes:
            if os.path.lexists(path) and not replaces:  # another command has made it meanwhile
                raise CommandFault(f"{path} exists already; --force replaces it")
            return data

        try:
            PrivateFile(path).change(content)
            if path == cert_path:
                os.chmod(path, CERT_MODE)
        except OSError as error:
            raise CommandFault(f"{path} cannot be written: {error.strerror or error}") from None

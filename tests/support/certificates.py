"""Certificates for tests: an authority, what it signs, and its revocation list, as PEM files in a folder."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)
USAGES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as files."""

    cert: str
    key: str
    serial_number: int


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


class Authority:
    """A test CA. `cacert` is the file with its certificate, whose name is `name`."""

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.name = name
        self._name = _name(name)
        builder = self._builder(self._name, self._key.public_key(), 0)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        builder = builder.add_extension(
            x509.KeyUsage(True, False, False, False, False, True, True, False, False), critical=True
        )
        self.certificate = builder.sign(self._key, hashes.SHA256())
        self.cacert = self._write(f"{name}.pem", self.certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, age_days: int) -> x509.CertificateBuilder:
        """Valid from a day before `age_days` ago for two days."""
        begin = datetime.datetime.now(datetime.UTC) - age_days * DAY - DAY
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin)
            .not_valid_after(begin + 2 * DAY)
        )

    def _write(self, name: str, data: bytes) -> str:
        path = self._folder / name
        path.write_bytes(data)
        return str(path)

    def pair(
        self,
        common_name: str,
        file: str = "",
        age_days: int = 0,
        password: bytes = b"",
        dns_names: Sequence[str] = ("localhost",),
        usages: Sequence[x509.ObjectIdentifier] = USAGES,
    ) -> Pair:
        """A certificate of this authority for 127.0.0.1, localhost and clients. With age_days of 5 it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(common_name), key.public_key(), age_days)
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in dns_names]
        names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password:
            encryption = serialization.BestAvailableEncryption(password)
        file = file or common_name
        return Pair(
            self._write(f"{file}.cert.pem", certificate.public_bytes(serialization.Encoding.PEM)),
            self._write(
                f"{file}.key.pem",
                key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption),
            ),
            certificate.serial_number,
        )

    def node(self, name: str, *more_names: str, age_days: int = 0) -> Pair:
        """A certificate of a node of a federation."""
        return self.pair(name, age_days=age_days, dns_names=(name, *more_names))

    def revocation_list(self, *pairs: Pair) -> str:
        """The file of a list that revokes these."""
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(now - DAY).next_update(now + DAY)
        for pair in pairs:
            revoked = x509.RevokedCertificateBuilder().serial_number(pair.serial_number).revocation_date(now - DAY)
            builder = builder.add_revoked_certificate(revoked.build())
        crl = builder.sign(self._key, hashes.SHA256())
        return self._write("crl.pem", crl.public_bytes(serialization.Encoding.PEM))

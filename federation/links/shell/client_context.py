"""The TLS of a link: which certificates it trusts, which one it shows."""

from __future__ import annotations

import ssl

from broker.server.key_pair import KeyPairFault, file_fault, load_key_pair
from federation.definitions.upstream import TlsOptions


class TlsFault(Exception):
    """A file cannot be used. The text names its key."""


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """A context with the files as they are now. Raises TlsFault."""
    for key in ("cacertfile", "certfile", "keyfile"):
        fault = file_fault(getattr(options, key))
        if fault:
            raise TlsFault(f"tls.{key}: {fault}")
    try:
        context = ssl.create_default_context(cafile=options.cacertfile or None)
    except ssl.SSLError:
        raise TlsFault(f"tls.cacertfile: {options.cacertfile} is not a PEM file of certificates") from None
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.certfile:
        try:
            load_key_pair(context, options.certfile, options.keyfile)
        except KeyPairFault as error:
            raise TlsFault(f"tls.{error.part}file: {error}") from None
    return context

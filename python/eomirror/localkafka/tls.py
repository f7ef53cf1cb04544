"""
A certificate authority and the brokers' key, made with the ``keytool`` that every Java runtime has.

The CA and the brokers' certificate are two certificates, not one that signs itself: strict clients refuse a CA
certificate as a server's own.  Nothing leaves the cluster's folder; the CA's key is thrown away after its only use.
https://docs.oracle.com/en/java/javase/17/docs/specs/man/keytool.html
"""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from eomirror.clock import new_token
from eomirror.errors import MirrorError
from eomirror.jvm import find_keytool
from eomirror.localkafka.settings import KeyStore

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["make_keys"]

_DAYS = "825"


def make_keys(folder: Path) -> KeyStore:
    """
    The brokers' key for 127.0.0.1 and localhost; what ``folder`` holds from before is used again.

    Raises:
        MirrorError: keytool failed.
    """
    store, secret, ca_pem = folder / "broker.p12", folder / "password", folder / "ca.pem"
    if not store.is_file():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        secret.touch(mode=0o600)
        secret.write_text(new_token(), encoding="ascii")
        _make(folder, secret, ca_pem)
    return KeyStore(store, secret.read_text("ascii"), ca_pem)


def _make(folder: Path, secret: Path, ca_pem: Path) -> None:
    ca, request, signed = folder / "ca.p12", folder / "broker.csr", folder / "broker.pem"
    fresh = folder / "broker.new.p12"
    # the password travels in a file: the arguments of a process can be read by everybody on the machine
    in_ca = ("-keystore", str(ca), "-storetype", "PKCS12", "-storepass:file", str(secret))
    in_broker = ("-keystore", str(fresh), "-storetype", "PKCS12", "-storepass:file", str(secret))
    key = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", _DAYS)
    names = "san=ip:127.0.0.1,dns:localhost"
    _keytool("-genkeypair", "-alias", "ca", "-dname", "CN=eomirror test CA", "-ext", "bc:c", *key, *in_ca)
    _keytool("-exportcert", "-rfc", "-alias", "ca", "-file", str(ca_pem), *in_ca)
    _keytool("-genkeypair", "-alias", "broker", "-dname", "CN=localhost", *key, *in_broker)
    _keytool("-certreq", "-alias", "broker", "-file", str(request), *in_broker)
    _keytool(
        *(
            "-gencert",
            "-alias",
            "ca",
            "-infile",
            str(request),
            "-outfile",
            str(signed),
            "-rfc",
            "-validity",
            _DAYS,
        ),
        *("-ext", names, "-ext", "eku=serverAuth", *in_ca),
    )
    _keytool("-importcert", "-noprompt", "-alias", "ca", "-file", str(ca_pem), *in_broker)
    _keytool("-importcert", "-noprompt", "-alias", "broker", "-file", str(signed), *in_broker)
    for path in (ca, request, signed):
        path.unlink()
    fresh.replace(folder / "broker.p12")


def _keytool(*arguments: str) -> None:
    command = [str(find_keytool()), "-J-Xshare:auto", "-J-XX:TieredStopAtLevel=1", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if answer.returncode != 0:
        raise MirrorError(
            f"keytool {arguments[0]} failed: {(answer.stdout + answer.stderr).strip()[:500]}",
            fix="check that the Java that JAVA_HOME or PATH names is a complete runtime",
        )

"""
Keys and certificates of a cluster that speaks TLS, and of its clients; some have expired, or another authority.

Made with ``keytool``, which every Java runtime has; a client's key with ``openssl``, since keytool writes no PEM key.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from eomirror.clock import new_token
from eomirror.jvm import find_keytool

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BrokerKeys", "ClientKeys"]

_LONG = ("-validity", "825")
_PAST = ("-startdate", "-30d", "-validity", "10")


@dataclass(frozen=True, slots=True)
class BrokerKeys:
    """
    Key stores where an embedded cluster looks for its own (`localkafka.cluster.make_keys`), and two authorities.

    Attributes:
        folder: The cluster's ``tls``; ``ca.pem`` in it is what clients trust.
        spare: Where everything is kept.
    """

    folder: Path
    spare: Path

    @classmethod
    def make(cls, folder: Path, spare: Path) -> BrokerKeys:
        """Make all stores, put the one that serves in its place, and have its authority trusted."""
        folder.mkdir(parents=True, mode=0o700)
        spare.mkdir()
        (folder / "password").touch(mode=0o600)
        (folder / "password").write_text(new_token(), encoding="ascii")
        made = cls(folder, spare)
        made._make()
        made.use("serving")
        made.trust("ca")
        return made

    def use(self, name: str) -> None:
        """``serving``, ``expired``, or ``successor`` (of the second authority); the broker reads it when it starts."""
        shutil.copyfile(self.spare / f"{name}.p12", self.folder / "broker.p12")

    def trust(self, *authorities: str) -> None:
        """``ca``, ``second``, or both, as a client reads them from now on."""
        texts = [(self.spare / f"{name}.pem").read_text("ascii") for name in authorities]
        (self.folder / "ca.pem").write_text("".join(texts), "ascii")

    def sign(
        self, request: Path, to: Path, *dates: str, authority: str = "ca", use: str = "clientAuth"
    ) -> None:
        """A certificate for a request, in PEM."""
        names = () if use == "clientAuth" else ("-ext", "san=ip:127.0.0.1,dns:localhost")
        self._keytool(
            authority, "-gencert", "-alias", "ca", "-infile", str(request), "-outfile", str(to), "-rfc",
            *(dates or _LONG), *names, "-ext", f"eku={use}",
        )  # fmt: skip

    def _make(self) -> None:
        new = ("-keyalg", "EC", "-groupname", "secp256r1", *_LONG)
        request = self.spare / "broker.csr"
        for authority in ("ca", "second"):
            pem = str(self.spare / f"{authority}.pem")
            dname = ("-dname", f"CN=test {authority}", "-ext", "bc:c")
            self._keytool(authority, "-genkeypair", "-alias", "ca", *dname, *new)
            self._keytool(authority, "-exportcert", "-rfc", "-alias", "ca", "-file", pem)
        self._keytool("key", "-genkeypair", "-alias", "broker", "-dname", "CN=localhost", *new)
        self._keytool("key", "-certreq", "-alias", "broker", "-file", str(request))
        for name, authority, dates in (
            ("serving", "ca", _LONG),
            ("expired", "ca", _PAST),
            ("successor", "second", _LONG),
        ):
            signed = self.spare / f"broker-{name}.pem"
            self.sign(request, signed, *dates, authority=authority, use="serverAuth")
            shutil.copyfile(self.spare / "key.p12", self.spare / f"{name}.p12")
            pem = str(self.spare / f"{authority}.pem")
            self._keytool(name, "-importcert", "-noprompt", "-alias", "authority", "-file", pem)
            self._keytool(name, "-importcert", "-noprompt", "-alias", "broker", "-file", str(signed))

    def _keytool(self, store: str, *arguments: str) -> None:
        where = ("-keystore", str(self.spare / f"{store}.p12"), "-storetype", "PKCS12")
        secret = ("-storepass:file", str(self.folder / "password"))
        command = [str(find_keytool()), "-J-XX:TieredStopAtLevel=1", *arguments, *where, *secret]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, (arguments[0], done.stdout, done.stderr)


@dataclass(frozen=True, slots=True)
class ClientKeys:
    """
    A client's key and its certificate, of the brokers' first authority.

    Attributes:
        key: In PEM.
        certificate: In PEM; `issue` writes it anew.
        brokers: Who signs.
    """

    key: Path
    certificate: Path
    brokers: BrokerKeys

    @classmethod
    def make(cls, folder: Path, brokers: BrokerKeys) -> ClientKeys:
        """Make the key; skips the test where there is no openssl."""
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("openssl makes the client's key")
        folder.mkdir(mode=0o700)
        made = cls(folder / "key.pem", folder / "certificate.pem", brokers)
        kind = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=mirror")
        where = ("-keyout", str(made.key), "-out", str(made._request))
        subprocess.run([openssl, "req", "-new", *kind, *where], check=True, capture_output=True)
        return made

    def issue(self, seconds: int = 0) -> None:
        """A certificate that expires so many seconds from now; 0 for years."""
        dates = ("-startdate", f"-1d+{seconds}S", "-validity", "1") if seconds else _LONG
        self.brokers.sign(self._request, self.certificate, *dates)

    @property
    def _request(self) -> Path:
        return self.certificate.with_suffix(".csr")

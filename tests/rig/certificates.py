"""A broker's key with a certificate that serves, and with one that has expired; both of one authority."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.clock import new_token
from eomirror.demo.java import find_keytool

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["BrokerKeys"]


@dataclass(frozen=True, slots=True)
class BrokerKeys:
    """
    Key stores where an embedded cluster looks for its own (`eomirror.demo.tls.make_keys`).

    Attributes:
        folder: The cluster's ``tls``.
        spare: Where both stores are kept.
    """

    folder: Path
    spare: Path

    @classmethod
    def make(cls, folder: Path, spare: Path) -> BrokerKeys:
        """Make both stores, and put the one that serves in its place."""
        folder.mkdir(parents=True, mode=0o700)
        spare.mkdir()
        (folder / "password").touch(mode=0o600)
        (folder / "password").write_text(new_token(), encoding="ascii")
        made = cls(folder, spare)
        made._make()
        made.use("serving")
        return made

    def use(self, name: str) -> None:
        """``serving`` or ``expired``; the broker reads it when it starts."""
        shutil.copyfile(self.spare / f"{name}.p12", self.folder / "broker.p12")

    def _make(self) -> None:
        new = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", "825")
        request, ca_pem = self.spare / "broker.csr", self.folder / "ca.pem"
        self._keytool("ca", "-genkeypair", "-alias", "ca", "-dname", "CN=test CA", "-ext", "bc:c", *new)
        self._keytool("ca", "-exportcert", "-rfc", "-alias", "ca", "-file", str(ca_pem))
        self._keytool("key", "-genkeypair", "-alias", "broker", "-dname", "CN=localhost", *new)
        self._keytool("key", "-certreq", "-alias", "broker", "-file", str(request))
        self._keytool("key", "-importcert", "-noprompt", "-alias", "ca", "-file", str(ca_pem))
        for name, dates in (
            ("serving", ("-validity", "825")),
            ("expired", ("-startdate", "-30d", "-validity", "10")),
        ):
            signed = self.spare / f"{name}.pem"
            self._keytool(
                "ca", "-gencert", "-alias", "ca", "-infile", str(request), "-outfile", str(signed), "-rfc", *dates,
                "-ext", "san=ip:127.0.0.1,dns:localhost", "-ext", "eku=serverAuth",
            )  # fmt: skip
            shutil.copyfile(self.spare / "key.p12", self.spare / f"{name}.p12")
            self._keytool(name, "-importcert", "-noprompt", "-alias", "broker", "-file", str(signed))

    def _keytool(self, store: str, *arguments: str) -> None:
        where = ("-keystore", str(self.spare / f"{store}.p12"), "-storetype", "PKCS12")
        secret = ("-storepass:file", str(self.folder / "password"))
        command = [str(find_keytool()), "-J-XX:TieredStopAtLevel=1", *arguments, *where, *secret]
        done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, (arguments[0], done.stdout, done.stderr)

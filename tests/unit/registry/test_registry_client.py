"""Logins, TLS and addresses of a registry's client."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import ssl
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from eomirror.config.schemas import RegistryEndpoint
from eomirror.config.secret import Secret
from eomirror.errors import RegistryError
from eomirror.registry.client import RegistryClient
from support.clusters.schema_registry import SchemaRegistry
from support.clusters.token_endpoint import token_endpoint
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def registry() -> Iterator[SchemaRegistry]:
    made = SchemaRegistry()
    made.add("a", '"int"')
    yield made
    made.close()


def client(registry: SchemaRegistry | str, **properties: str | Secret) -> Any:
    """A client that its test closes."""
    url = registry if isinstance(registry, str) else registry.url
    named = {"url": url, **{key.replace("_", "."): value for key, value in properties.items()}}
    return closing(RegistryClient(RegistryEndpoint(tuple(named.items())), name="registry of east"))


def test_a_basic_login_and_a_token(registry: SchemaRegistry) -> None:
    """Each is sent with every request; without it the registry's refusal is named, and no secret."""
    login = "Basic " + base64.b64encode(b"mirror:s3cret").decode()
    registry.allowed = lambda headers: headers["Authorization"] in (login, "Bearer t0ken")
    for given in ({"basic_auth_user_info": Secret("mirror:s3cret")}, {"bearer_auth_token": Secret("t0ken")}):
        with client(registry, **given) as one:
            assert one.subjects() == ["a"]
    with client(registry, bearer_auth_token=Secret("wr0ng")) as one:
        with pytest.raises(RegistryError, match="401") as refused:
            one.subjects()
        assert "login" in refused.value.fix
        assert "wr0ng" not in str(refused.value)


def test_client_credentials_get_a_token_once(registry: SchemaRegistry) -> None:
    """The token is used until most of its life has passed, and replaced when the registry refuses it."""
    clock = PlayedClock()
    tokens = iter(["first", "second", "third"])
    valid = {"first"}
    registry.allowed = lambda headers: headers["Authorization"].removeprefix("Bearer ") in valid
    with token_endpoint() as issuer:
        issuer.knows("mirror", "s3cret", lambda: next(tokens))
        properties = {
            "url": registry.url,
            "bearer.auth.issuer.endpoint.url": issuer.url,
            "bearer.auth.client.id": "mirror",
            "bearer.auth.client.secret": Secret("s3cret"),
            "bearer.auth.scope": "schemas",
        }
        endpoint = RegistryEndpoint(tuple(properties.items()))
        with closing(RegistryClient(endpoint, name="registry", clock=clock)) as one:
            one.subjects()
            one.subjects()
            assert len(issuer.asked) == 1
            assert "scope=schemas" in issuer.asked[0][1]
            valid.clear()
            valid.add("second")
            assert one.subjects() == ["a"]
            assert len(issuer.asked) == 2
            clock.sleep(241)
            valid.add("third")
            one.subjects()
            assert len(issuer.asked) == 3
        issuer.says(400, b'{"error":"invalid_client s3cret"}')
        with closing(RegistryClient(endpoint, name="registry", clock=clock)) as one:
            with pytest.raises(RegistryError, match="token endpoint") as refused:
                one.subjects()
            assert "s3cret" not in str(refused.value)


class Authority:
    """An authority with a server's and a client's certificate, as PEM files."""

    def __init__(self, folder: Path, password: bytes) -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority")])
        own = self._signed(self._key, "authority", x509.BasicConstraints(ca=True, path_length=None))
        (folder / "ca.pem").write_bytes(own.public_bytes(serialization.Encoding.PEM))
        self._make("server", serialization.NoEncryption())
        self._make("client", serialization.BestAvailableEncryption(password))

    def path(self, name: str) -> str:
        """Path of a file."""
        return str(self.folder / name)

    def _make(self, name: str, encryption: serialization.KeySerializationEncryption) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        (self.folder / f"{name}.pem").write_bytes(
            self._signed(key, name, names).public_bytes(serialization.Encoding.PEM)
        )
        (self.folder / f"{name}.key").write_bytes(
            key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        )

    def _signed(self, key: ec.EllipticCurvePrivateKey, name: str, extension: Any) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        signs = isinstance(extension, x509.BasicConstraints)
        usage = x509.KeyUsage(
            digital_signature=True, content_commitment=False, key_encipherment=False, data_encipherment=False,
            key_agreement=False, key_cert_sign=signs, crl_sign=signs, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=2))
            .add_extension(extension, critical=signs)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, b"k3y")


def test_mutual_tls(authority: Authority) -> None:
    """Both sides show a certificate; one that the client does not trust, and a missing one, are errors."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.path("server.pem"), authority.path("server.key"))
    context.load_verify_locations(authority.path("ca.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    registry = SchemaRegistry(tls=context)
    trusted = {"ssl_ca_location": authority.path("ca.pem")}
    shown = {
        "ssl_certificate_location": authority.path("client.pem"),
        "ssl_key_location": authority.path("client.key"),
    }
    try:
        with client(registry, **trusted, **shown, ssl_key_password=Secret("k3y")) as one:
            assert one.subjects() == []
        with client(registry) as one, pytest.raises(RegistryError, match="does not answer"):
            one.subjects()
        with client(registry, **trusted) as one, pytest.raises(RegistryError, match="does not answer"):
            one.subjects()
        with pytest.raises(RegistryError, match="certificate files"):
            client(registry, **trusted, **shown, ssl_key_password=Secret("wr0ng"))
    finally:
        registry.close()


def test_several_addresses(registry: SchemaRegistry) -> None:
    """The next one is asked if one does not answer, and is asked first from then on."""
    with client(f"http://127.0.0.1:1,{registry.url}") as one:
        assert one.subjects() == ["a"]
        assert registry.url in one.name


def test_the_next_address_is_asked_if_one_is_overloaded(registry: SchemaRegistry) -> None:
    """A proxy answers for a registry that is away."""
    other = SchemaRegistry()
    other.failures = [503] * 3
    try:
        with client(f"{other.url},{registry.url}") as one:
            assert one.subjects() == ["a"]
    finally:
        other.close()


def test_long_lists_come_in_pages(registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    """A subject beyond the first page is no deleted one; a registry without pages repeats its list."""
    wanted = sorted(["a", *(f"s{number:03}" for number in range(249))])
    for name in wanted[1:]:
        registry.add(name, '"int"')
    with client(registry) as one:
        for page in (100, 0):
            registry.page = page
            assert one.subjects() == wanted
        for number in range(120):
            registry.add("a", f'"{number}"')
        registry.page = 100
        assert one.versions("a") == list(range(1, 122))
        monkeypatch.setattr(registry, "_paged", lambda found, _: found)
        assert one.subjects() == wanted


def test_a_redirect_takes_no_login_along(registry: SchemaRegistry) -> None:
    """Another server is asked without it; its refusal is that of the registry."""
    other = SchemaRegistry()
    seen: list[str | None] = []

    def refuses(headers: Any) -> bool:
        seen.append(headers["Authorization"])
        return False

    other.allowed = refuses
    registry.moved = other.url
    try:
        with client(registry, bearer_auth_token=Secret("t0ken")) as one:
            with pytest.raises(RegistryError, match="401"):
                one.subjects()
            assert seen == [None]
            registry.moved = registry.url
            with pytest.raises(RegistryError, match="does not answer"):
                one.subjects()
    finally:
        other.close()


def test_a_token_that_no_header_can_carry_is_not_shown(registry: SchemaRegistry) -> None:
    """The library's own error would name the whole header."""
    with token_endpoint() as issuer:
        issuer.knows("mirror", "s3cret", lambda: "t0ken\nX: y")
        properties: dict[str, str | Secret] = {
            "bearer_auth_issuer_endpoint_url": issuer.url,
            "bearer_auth_client_id": "mirror",
            "bearer_auth_client_secret": Secret("s3cret"),
        }
        with client(registry, **properties) as one, pytest.raises(RegistryError) as refused:
            one.subjects()
    assert "t0ken" not in str(refused.value)
    assert "token endpoint" in str(refused.value)


def test_a_configuration_without_a_level_is_no_level(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subject may have an alias or rules of its own, and the level of its context."""
    monkeypatch.setattr(registry, "answer", lambda *_: {"alias": "b"})
    with client(registry) as one:
        assert one.level("a") is None


@pytest.mark.parametrize("answer", [None, {"a": 1}, ["a"], "text"])
def test_another_server_is_named(
    registry: SchemaRegistry, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers are those of no registry: none of them passes for an empty one."""
    monkeypatch.setattr(registry, "answer", lambda *_: answer)
    with client(registry) as one:
        for ask in (lambda: one.versions("a"), lambda: one.version("a", 1) or one.mode("a")):
            with pytest.raises(RegistryError, match=r"(not that|no answer) of a schema registry"):
                ask()


def test_headers_of_confluent_cloud(registry: SchemaRegistry) -> None:
    """The logical cluster and the identity pool go with a token."""
    seen: list[Any] = []
    registry.allowed = lambda headers: not seen.append(dict(headers))
    given = {"bearer_auth_logical_cluster": "lsrc-1", "bearer_auth_identity_pool_id": "pool-1"}
    with client(registry, bearer_auth_token=Secret("t"), **given) as one:
        one.subjects()
    assert seen[0]["target-sr-cluster"] == "lsrc-1"
    assert seen[0]["Confluent-Identity-Pool-Id"] == "pool-1"
    assert json.dumps(seen[0]["Accept"]).startswith('"application/vnd.schemaregistry')

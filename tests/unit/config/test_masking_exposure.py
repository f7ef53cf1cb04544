"""Settings that let others read a secret: each is a warning by its path, with the fix, and refuses nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from click.testing import CliRunner

from eomirror.cli.check import check
from eomirror.config import load_config

if TYPE_CHECKING:
    from pathlib import Path

LINKS = [{"source": "east", "target": "west", "topics": ["t"]}]
EAST, WEST = {"bootstrap.servers": "127.0.0.1:1"}, {"bootstrap.servers": "127.0.0.1:2"}
LOGIN = {
    **WEST,
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "ana",
}


def written(folder: Path, mode: int, **west: Any) -> Path:
    """A configuration file of this mode."""
    path = folder / "mirror.yaml"
    body = {
        "clusters": {"east": EAST, "west": LOGIN | west},
        "links": LINKS,
        "spark": {"spark.ui.port": "4041"},
    }
    path.write_text(yaml.safe_dump(body))
    path.chmod(mode)
    return path


def warned(path: Path, **options: Any) -> dict[str, str]:
    """Path of each warning, and its text."""
    return {each.path: f"{each.message}; {each.fix}" for each in load_config(path, **options).warnings}


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_password_in_a_file_that_others_can_read_is_a_warning(tmp_path: Path, mode: int) -> None:
    """Its path, the mode and the fix are named, and the password is not."""
    path = written(
        tmp_path, mode, **{"sasl.password": "hunter2", "consumer": {"ssl.key.password": "hunter3"}}
    )

    found = warned(path)

    assert set(found) == {"clusters.west.sasl.password", "clusters.west.consumer.ssl.key.password"}
    for text in found.values():
        assert f"mode {mode:04o}" in text
        assert "chmod 600 mirror.yaml" in text
        assert "${env:NAME}" in text
        assert "hunter" not in text


def test_a_file_of_ones_own_may_hold_a_password(tmp_path: Path) -> None:
    """Others cannot read it, whatever else they may do with it."""
    assert not warned(written(tmp_path, 0o600, **{"sasl.password": "hunter2"}))
    assert not warned(written(tmp_path, 0o711, **{"sasl.password": "hunter2"}))


def test_what_shows_no_secret_is_no_warning(tmp_path: Path) -> None:
    """References, what is given on the command line or as plain values, and names of files, places and the public."""
    public = {
        "sasl.password": "${env:PASSWORD}",
        "ssl.key.location": "/etc/key.pem",
        "ssl.ca.pem": "-----BEGIN CERTIFICATE-----",
        "ssl.certificate.pem": "-----BEGIN CERTIFICATE-----",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example/token",
        "sasl.kerberos.keytab": "/etc/mirror.keytab",
    }
    environ = {"PASSWORD": "hunter2"}
    assert not warned(written(tmp_path, 0o644, **public), environ=environ)
    override = ["clusters.west.sasl.password=hunter2"]
    assert not warned(written(tmp_path, 0o644), overrides=override)
    plain = {"clusters": {"east": EAST, "west": LOGIN | {"sasl.password": "hunter2"}}, "links": LINKS}
    assert not load_config(plain).warnings


def test_secrets_of_spark_and_of_a_url_count(tmp_path: Path) -> None:
    """By the property's name, or by what its value says."""
    path = tmp_path / "mirror.yaml"
    spark = {
        "spark.authenticate.secret": "hunter2",
        "spark.driver.extraJavaOptions": "-Djavax.net.ssl.keyStorePassword=hunter2",
        "spark.security.credentials.kafka.enabled": "false",
        "spark.jars.repositories": "https://ana:hunter2@repository.example",
    }
    path.write_text(
        yaml.safe_dump({"clusters": {"east": EAST, "west": WEST}, "links": LINKS, "spark": spark})
    )
    path.chmod(0o644)
    assert set(warned(path)) == {
        "spark.spark.authenticate.secret",
        "spark.spark.driver.extraJavaOptions",
        "spark.spark.jars.repositories",
    }


def test_passwords_in_properties_of_mirrormaker_count(tmp_path: Path) -> None:
    """The same file format that MirrorMaker 2 has."""
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = east, west\neast.bootstrap.servers = 127.0.0.1:1\nwest.bootstrap.servers = 127.0.0.1:2\n"
        "east->west.enabled = true\neast->west.topics = t\nwest.security.protocol = SASL_SSL\n"
        "west.sasl.mechanism = PLAIN\nwest.sasl.jaas.config = "
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="hunter2";\n'
    )
    path.chmod(0o644)
    found = {where: text for where, text in warned(path).items() if "other users can read" in text}
    assert set(found) == {"clusters.west.sasl.password"}
    path.chmod(0o600)
    assert not [text for text in warned(path).values() if "other users can read" in text]


@pytest.mark.parametrize(
    ("key", "value", "fix"),
    [
        ("ssl.endpoint.identification.algorithm", "none", "remove it"),
        ("ssl.endpoint.identification.algorithm", "None", "remove it"),
        ("enable.ssl.certificate.verification", "false", "remove it"),
        ("sasl.oauthbearer.token.endpoint.url", "http://login.example/token", "https://"),
        ("sasl.oauthbearer.token.endpoint.url", "${env:URL}", "https://"),
    ],
)
@pytest.mark.parametrize("role", [None, "consumer", "producer"])
def test_a_login_that_others_in_between_can_read_is_a_warning(
    tmp_path: Path, key: str, value: str, fix: str, role: str | None
) -> None:
    """On the cluster, and on its consumers or producers alone."""
    path = written(tmp_path, 0o644, **({key: value} if role is None else {role: {key: value}}))
    environ = {"URL": "http://login.example/token?secret=hunter2"}

    ((where, text),) = warned(path, environ=environ).items()

    assert where == ".".join(["clusters.west", *([] if role is None else [role]), key])
    assert fix in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ssl.endpoint.identification.algorithm", "https"),
        ("enable.ssl.certificate.verification", "true"),
        ("sasl.oauthbearer.token.endpoint.url", "https://login.example/token"),
        ("sasl.oauthbearer.token.endpoint.url", "http://localhost:8080/token"),
        ("sasl.oauthbearer.token.endpoint.url", "http://127.0.0.1:8080/token"),
        ("sasl.oauthbearer.token.endpoint.url", "http://[::1]:8080/token"),
    ],
)
def test_a_login_that_cannot_be_read_on_the_way_is_none(tmp_path: Path, key: str, value: str) -> None:
    """An endpoint of this machine is not reached through a network."""
    assert not warned(written(tmp_path, 0o644, **{key: value}))


def test_check_prints_the_warnings_and_ends_well(tmp_path: Path) -> None:
    """With path, line and fix; a configuration is not refused for them."""
    path = written(
        tmp_path, 0o644, **{"sasl.password": "hunter2", "ssl.endpoint.identification.algorithm": "none"}
    )
    result = CliRunner().invoke(check, [str(path), "-o", "json"], standalone_mode=False)
    assert (result.exit_code, result.return_value) == (0, 0), result.output
    warnings = json.loads(result.stdout)["warnings"]
    assert {(each["path"], bool(each["line"]), bool(each["fix"])) for each in warnings} == {
        ("clusters.west.sasl.password", True, True),
        ("clusters.west.ssl.endpoint.identification.algorithm", True, True),
    }
    assert "hunter2" not in result.output

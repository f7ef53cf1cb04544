"""Secrets of mm2.properties: JAAS, config providers and stores appear in no output, and in no error about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import structlog

from eomirror.cli.app import main

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
LINES = [
    "clusters = a, b", "a.bootstrap.servers = 127.0.0.1:1", "b.bootstrap.servers = 127.0.0.1:1",
    "a->b.enabled = true", "a->b.topics = orders",
    "config.providers = file", f"config.providers.file.class = {PROVIDER}",
]  # fmt: skip


@pytest.fixture(autouse=True)
def log() -> Iterator[None]:
    """The commands' log ends with them: it writes to a stream that the capture closes."""
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("words", [["check"], ["check", "-o", "json"], ["status"], ["plan"]], ids=" ".join)
@pytest.mark.parametrize(
    "line",
    [
        "a.ssl.key.password = ${{file:{folder}/values.properties:password}}",
        f'a.sasl.jaas.config = {LOGIN} username="u" password="{{secret}}";',
        "a.sasl.jaas.config = not jaas at all {secret}",
        "b.ssl.keystore.password = {secret}",
        "b.sasl.oauthbearer.token.endpoint.url = https://u:{secret}@idp.example/token",
    ],
    ids=["provider", "jaas", "broken jaas", "keystore", "url"],
)
def test_a_secret_is_in_no_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], line: str, words: list[str]
) -> None:
    """Whether the file is taken or refused, and a cluster is away."""
    secret = "planted-vA7q"  # noqa: S105  it is planted
    (tmp_path / "values.properties").write_text(f"password={secret}\n")
    path = tmp_path / "mm2.properties"
    login = ["a.security.protocol = SASL_SSL", "a.sasl.mechanism = SCRAM-SHA-512"] if "jaas" in line else []
    path.write_text("\n".join([*LINES, *login, line.format(secret=secret, folder=tmp_path), ""]))
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    with pytest.raises(SystemExit):
        main([words[0], str(path), *words[1:]])
    output = "".join(capfd.readouterr())
    assert len(output) > 20
    assert secret not in output

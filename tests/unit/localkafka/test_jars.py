"""Pinned jars: the lock files, and what happens when a jar is not the pinned one."""

from __future__ import annotations

import hashlib
from importlib import resources
from typing import TYPE_CHECKING

import pytest

from eomirror.errors import MirrorError, UsageError
from eomirror.localkafka import jars

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("line", list(jars.KAFKA_VERSIONS))
def test_lock_pins_every_jar_once(line: str) -> None:
    """Every jar has a full digest, no file name comes twice, and Kafka itself is the announced release."""
    locked = jars.parse_lock(
        resources.files("eomirror.localkafka").joinpath(f"kafka-{line}.lock").read_text("utf-8")
    )
    names = [jar.file_name for jar in locked]
    assert len(names) == len(set(names))
    assert all(len(bytes.fromhex(jar.sha256)) == 32 for jar in locked)
    assert f"kafka_2.13-{jars.KAFKA_VERSIONS[line]}.jar" in names
    assert not any(name.startswith("scala-library") for name in names)
    for codec in ("lz4-java", "snappy-java", "zstd-jni"):
        assert any(name.startswith(codec) for name in names)


@pytest.mark.parametrize(("asked", "exact"), [("4.3", "4.3.1"), ("4.3.1", "4.3.1"), ("3.9", "3.9.2")])
def test_line_and_release_name_the_same_jars(asked: str, exact: str) -> None:
    """A user may write the line or the pinned release."""
    assert jars.exact_version(asked) == exact


def test_unknown_version_names_the_known_ones() -> None:
    """A version without pinned jars is a usage error that lists what there is."""
    with pytest.raises(UsageError, match=r"2\.7") as caught:
        jars.exact_version("2.7")
    assert "4.3" in caught.value.fix


def test_wrong_jar_never_reaches_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A jar with another digest is refused by name, and what was fetched is thrown away."""
    good = hashlib.sha256(b"good").hexdigest()
    monkeypatch.setenv("EOMIRROR_CACHE", str(tmp_path))
    monkeypatch.setattr(jars, "_locked", lambda _exact: (jars.Jar("g", "a", "1", good),))
    monkeypatch.setattr(
        jars._Ivy,
        "start",
        lambda _self: next(tmp_path.glob("kafka-*.part/jars")).joinpath("a-1.jar").write_bytes(b"evil"),
    )
    monkeypatch.setattr(jars._Ivy, "join", lambda _self: None)
    monkeypatch.setattr(jars._Ivy, "check", lambda _self: None)
    with pytest.raises(MirrorError, match="g:a:1 is not the pinned jar"):
        jars.class_path("4.3")
    assert [path.suffix for path in tmp_path.iterdir()] == [".lock"]


def test_an_archive_that_is_no_jar_is_asked_for_by_its_classifier() -> None:
    """Maven Central has several files of a version; the main one is the jar."""
    archive = jars.Jar("g", "a", "1", "", classifier="all", extension="tar.gz")
    assert (archive.file_name, jars.Jar("g", "a", "1", "").file_name) == ("a-1-all.tar.gz", "a-1.jar")
    assert '<artifact name="a" type="tar.gz" ext="tar.gz" m:classifier="all"/>' in jars._ivy_module([archive])
    assert "classifier" not in jars._ivy_module([jars.Jar("g", "a", "1", "")])

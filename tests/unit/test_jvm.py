"""Finding Java, and saying how to get one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eomirror.errors import MirrorError
from eomirror.jvm import find_java, java_major

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("banner", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "25" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx\nopenjdk version "21.0.1" 2023-10-17', 21),
        ("command not found", 0),
    ],
)
def test_major_version_is_read_from_the_banner(banner: str, major: int) -> None:
    """Old and new version schemes are told apart, whatever stands around them."""
    assert java_major(banner) == major


def fake_java(home: Path, banner: str) -> None:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n", encoding="ascii")
    java.chmod(0o755)


def test_old_java_is_refused_with_the_way_to_a_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java 11 is named, and so is what to install."""
    fake_java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(MirrorError, match="is version 11; 17 or newer") as caught:
        find_java()
    assert "apt-get install openjdk-17" in caught.value.fix


def test_missing_java_is_refused_with_the_way_to_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty PATH gives an error of its own, not a traceback."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MirrorError, match="no java found on PATH"):
        find_java()


def test_java_home_wins_over_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order is Spark's: JAVA_HOME first."""
    fake_java(tmp_path, 'openjdk version "21.0.1"')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == tmp_path / "bin" / "java"

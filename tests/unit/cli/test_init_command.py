"""`eomirror init`, as a user calls it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from eomirror.config import load_config
from eomirror.config.model import LINK_SETTINGS


def eomirror(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run(
        [Path(sys.executable).with_name("eomirror"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
    )


def test_the_written_file_is_valid_and_names_every_setting(tmp_path: Path) -> None:
    """The file loads with the given values, and each setting of a link stands in it."""
    done = eomirror(
        tmp_path, "init", "my.yaml", "--source", "a=k1:1,k2:2", "--target", "b=k3:3", "--topics", "x.*"
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "my.yaml").read_text()
    config = load_config(tmp_path / "my.yaml")
    assert [(link.source, link.target, link.topics) for link in config.links] == [("a", "b", ("x.*",))]
    assert config.clusters["a"].bootstrap_servers == "k1:1,k2:2"
    missing = [name for name in LINK_SETTINGS if not re.search(rf"^ +(- |# )?{name}:", text, re.MULTILINE)]
    assert missing == ["name"]
    assert "eomirror check my.yaml" in text


def test_the_commented_defaults_are_the_defaults(tmp_path: Path) -> None:
    """With every comment of a default taken away the configuration means the same."""
    text = eomirror(tmp_path, "init", "-").stdout
    bare = text
    for name, each in LINK_SETTINGS.items():
        bare = bare.replace(f"\n  # {name}: {each.shown}\n", f"\n  {name}: {each.shown}\n")
    assert {"lanes", "plane", "start", "offset_syncs"} < set(yaml.safe_load(bare)["defaults"])
    assert load_config(yaml.safe_load(bare)).links == load_config(yaml.safe_load(text)).links


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    """Without --force nothing is overwritten."""
    (tmp_path / "mirror.yaml").write_text("mine")
    done = eomirror(tmp_path, "init")
    assert done.returncode == 2
    assert "mirror.yaml exists" in done.stderr
    assert "--force" in done.stderr
    assert (tmp_path / "mirror.yaml").read_text() == "mine"
    assert eomirror(tmp_path, "init", "--force").returncode == 0
    assert load_config(tmp_path / "mirror.yaml").links


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["--source", "k1:9092"], 2, "--source k1:9092"),
        (["--source", "a.b=k1:9092"], 78, "a.b"),
        (["--topics", "("], 78, "unclosed group"),
        (["none/mirror.yaml"], 1, "none/mirror.yaml cannot be written"),
    ],
)
def test_a_wrong_value_writes_nothing(tmp_path: Path, arguments: list[str], code: int, named: str) -> None:
    """The error names the value, and no file appears."""
    done = eomirror(tmp_path, "init", *arguments)
    assert done.returncode == code
    assert named in done.stderr
    assert list(tmp_path.iterdir()) == []

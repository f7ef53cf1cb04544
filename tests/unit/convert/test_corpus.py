"""
Configurations of MirrorMaker 2, Strimzi, Go MirrorMaker and others, each with its meaning here.

A case is one file under corpus/: a comment, the command, its files, and what comes out: the YAML, or for a refusal the
messages.  ``EOMIRROR_REWRITE=1`` writes what comes out; read the difference before you commit it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from eomirror import load_config
from eomirror.cli.import_mm2 import import_files
from eomirror.errors import MirrorError

CORPUS = Path(__file__).parent / "corpus"
CASES = sorted(CORPUS.glob("*/*.txt"))


@dataclass(frozen=True)
class Case:
    """One configuration, as a user has it."""

    head: str
    arguments: list[str]
    files: dict[str, str]
    expected: str

    @classmethod
    def read(cls, path: Path) -> Case:
        head, *parts = re.split(r"^==> (.+)\n", path.read_text(), flags=re.MULTILINE)
        sections = dict(zip(parts[::2], parts[1::2], strict=True))
        command = next(line for line in head.splitlines() if line.startswith("$ "))
        expected = next(
            (f"==> {name}\n{text}" for name, text in sections.items() if name.startswith("exit ")), ""
        )
        files = {name: text for name, text in sections.items() if not name.startswith("exit ")}
        return cls(head, shlex.split(command)[3:], files, expected)


def imported(case: Case, folder: Path) -> str:
    """Runs the command; returns the exit code with the YAML, or with the messages of a refusal."""
    for name, text in case.files.items():
        (folder / name).write_text(text)
    arguments = [str(folder / each) if each in case.files else each for each in case.arguments]
    done = CliRunner().invoke(import_files, arguments, standalone_mode=False)
    if done.exception is not None:
        assert isinstance(done.exception, MirrorError), done.exception
        assert done.stdout == ""
        return f"==> exit {done.exception.exit_code}\n{done.exception}\n"
    code = int(done.return_value)
    assert (code == 0) == bool(done.stdout), "a refusal writes nothing, everything else writes YAML"
    return f"==> exit {code}\n{done.stdout or done.stderr}"


@pytest.mark.parametrize("path", CASES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_configuration_keeps_its_meaning_or_is_refused_by_name(path: Path, tmp_path: Path) -> None:
    """What comes out is what the case says, and `check` accepts it."""
    case = Case.read(path)

    found = imported(case, tmp_path)

    if os.environ.get("EOMIRROR_REWRITE"):
        body = "".join(f"==> {name}\n{text}" for name, text in case.files.items())
        path.write_text(f"{case.head}{body}{found}")
        return
    assert found == case.expected
    if found.startswith("==> exit 0"):
        text = found.split("\n", 1)[1]
        names = re.findall(r"\$\{env:(\w+)\}", text)
        settings = yaml.safe_load(re.sub(r"\$\{file:[^}]*\}", "secret", text))
        assert load_config(settings, environ=dict.fromkeys(names, "secret")).links


def test_the_corpus_is_large_enough() -> None:
    """Twenty of each of the three mirrors that users come from most."""
    count = {kind: sum(path.parent.name == kind for path in CASES) for kind in ("mm2", "strimzi", "go")}
    assert min(count.values()) >= 20, count


def test_the_file_that_the_refusal_of_replicator_prints_is_accepted(tmp_path: Path) -> None:
    """Written as it stands, it mirrors the same topics to the same names."""
    case = Case.read(next(CORPUS.glob("connect/*-confluent-replicator.txt")))
    said = imported(case, tmp_path)
    settings, _ = json.JSONDecoder().raw_decode(said[said.index('{"clusters"') :])

    config = load_config(settings, environ={"SRC_SASL_PASSWORD": "secret"})

    assert "hush" not in said
    link = config.links[0]
    assert [name for name in ("orders", "pay.in", "payxin", "pay.test") if link.mirrors(name)] == [
        "orders",
        "pay.in",
    ]
    assert link.target_topic("orders") == "orders.replica"

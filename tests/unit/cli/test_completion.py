"""`eomirror completion`: what a shell makes of the names that it is given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from eomirror.config import load_config

BASH = shutil.which("bash")

#: a program with one option, whose names are those of a file
PROGRAM = """#!{python}
import click
from click.shell_completion import CompletionItem
from pathlib import Path
from eomirror.cli.completion import quote_names_in_bash

def names(context, parameter, incomplete):
    found = Path({names!r}).read_text().split("\\0")
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]

@click.command()
@click.option("--name", shell_complete=names)
def main(name):
    pass

quote_names_in_bash()
main(prog_name="eomirror", complete_var="_EOMIRROR_COMPLETE")
"""

#: each completion as the shell reads it in a command line
READ = """
eval "$(_EOMIRROR_COMPLETE=bash_source eomirror)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
_eomirror_completion eomirror
for each in "${COMPREPLY[@]}"; do eval "set -- $OPENED$each$OPENED"; printf '%s\\0' "$#" "$@"; done
"""


def eomirror(folder: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    return subprocess.run(
        [Path(sys.executable).with_name("eomirror"), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=folder,
        env={**os.environ, **environ},
    )


def test_links_are_completed(tmp_path: Path) -> None:
    """Behind the configuration `--link` completes its links; a file that cannot be read completes nothing, silently."""
    eomirror(tmp_path, "init", "mirror.yaml", "--source", "a=k1:1", "--target", "b=k2:2")
    assert [link.name for link in load_config(tmp_path / "mirror.yaml").links] == ["a->b"]
    for file, expected in (("mirror.yaml", ["plain,'a->b'"]), ("none.yaml", [])):
        for words, number in (
            (["--link", ""], "4"),
            (["--link", "="], "4"),
            (["--link", "=", "a"], "5"),
        ):
            done = eomirror(
                tmp_path,
                COMP_WORDS="\n".join(["eomirror", "status", file, *words]),
                COMP_CWORD=number,
                _EOMIRROR_COMPLETE="bash_complete",
            )
            assert done.stdout.split() == expected, words
            assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_names_the_command(tmp_path: Path, shell: str) -> None:
    """The printed script completes `eomirror`; bash itself accepts its script."""
    done = eomirror(tmp_path, "completion", shell)
    assert done.returncode == 0, done.stderr
    assert "_EOMIRROR_COMPLETE" in done.stdout
    if shell == "bash":
        assert BASH is not None
        subprocess.run([BASH, "-n"], input=done.stdout, text=True, check=True)


@pytest.mark.parametrize("opened", ["", "'", '"'])
@pytest.mark.parametrize(
    "names",
    [
        ["orders"],
        ["east->west", "east->north"],
        ["$(touch pwned)", "`touch pwned`"],
        ["a b", "it's", 'a"b', "a\\b"],
    ],
    ids=["plain", "links", "commands", "quotes"],
)
def test_bash_reads_each_name_as_one_word(tmp_path: Path, names: list[str], opened: str) -> None:
    """A link is no redirection, and the name of a group no command; also behind a quote that the user typed."""
    assert BASH is not None
    program = tmp_path / "eomirror"
    program.write_text(PROGRAM.format(python=sys.executable, names=str(tmp_path / "names")))
    program.chmod(0o755)
    (tmp_path / "names").write_text("\0".join(names))
    done = subprocess.run(
        [BASH, "-c", READ, "bash", "eomirror", "--name", opened],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "OPENED": opened},
    )
    assert done.stdout.split("\0") == [part for name in names for part in ("1", name)] + [""]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["eomirror", "names"]

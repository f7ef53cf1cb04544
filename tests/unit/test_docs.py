"""The documents say what is there: commands, links and the map of the files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def test_the_first_two_commands_of_the_readme_are_demo_and_test() -> None:
    """The README opens with exactly the two commands that a newcomer needs."""
    blocks = re.findall(
        r"^```sh\n(.*?)^```$", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL
    )
    assert blocks[:2] == ["./dev demo\n", "./dev test\n"]


def test_ci_runs_the_test_command_of_the_readme() -> None:
    """What a newcomer runs and what CI runs are the same."""
    assert "./dev test" in (ROOT / ".ci" / "run").read_text()


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    """A link to a file that was moved is found here, not by a reader."""
    links = re.findall(r"\]\(([^)#\s]+)", document.read_text())
    dead = [link for link in links if "://" not in link and not (document.parent / link).exists()]
    assert dead == []


def test_the_file_map_lists_what_is_there() -> None:
    """DESIGN.md's map names every module, in the words of its own docstring."""
    command = [sys.executable, "scripts/file_map.py", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stderr


def test_every_decision_is_in_the_index_with_its_status() -> None:
    """The list of decisions names every page, with the status that the page has."""
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    wrong = []
    for page in sorted((ROOT / "docs" / "adr").glob("0[0-9][0-9][0-9]-*.md")):
        status = re.search(r"^\| Status \| (.+?) \|$", page.read_text(), flags=re.MULTILINE)
        row = re.search(rf"^\| \[\d+\]\({re.escape(page.name)}\) \|.*\| (.+?) \|$", index, flags=re.MULTILINE)
        if not status or not row or status[1] != row[1]:
            wrong.append(page.name)
    assert wrong == []


def test_rules_have_ids_without_holes() -> None:
    """Twelve rules, EO-1 to EO-12, each defined once."""
    ids = re.findall(r"^\| (EO-\d+) \|", (ROOT / "DESIGN.md").read_text(), flags=re.MULTILINE)
    assert ids == [f"EO-{number}" for number in range(1, 13)]

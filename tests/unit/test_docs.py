"""The documents say what is there: commands, links and the map of the files."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from mkdocs.exceptions import PluginError

from eomirror import errors, load_config
from eomirror.cli.app import cli
from support.links.example_scenarios import SCENARIOS

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [
        *ROOT.glob("*.md"),
        # the map of files is generated, and not committed: it may be older than the files
        *(page for page in (ROOT / "docs").rglob("*.md") if page.name != "file-map.md"),
        ROOT / "tests" / "README.md",
        ROOT / "rust" / "kafka" / "README.md",
    ]
)


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


@pytest.mark.parametrize(
    "document",
    [path for path in [*DOCUMENTS, ROOT / "bench" / "README.md"] if path.parent.name != "reports"],
    ids=lambda path: path.relative_to(ROOT).as_posix(),
)
def test_files_that_a_document_names_exist(document: Path) -> None:
    """A path in the text of a document, relative to the repository, a package or the page, leads to a file."""
    docs = ROOT / "docs"
    roots = (ROOT, ROOT / "python" / "eomirror", ROOT / "rust", docs, docs / "examples", document.parent)
    named = re.findall(
        r"(?<![\w/.{-])((?:[\w.-]+/)+[\w-]+\.(?:py|rs|md|yaml|jsonl|toml))\b", document.read_text()
    )
    # ./mirror.yaml is a file of the reader's
    ours = {path for path in named if "DATE-" not in path and not path.startswith("./")}
    assert {path for path in ours if not any((root / path).exists() for root in roots)} == set()


CODE = (
    *(ROOT / name for name in ("justfile", "dev", "pyproject.toml", "mkdocs.yml", "clippy.toml", ".ci/run")),
    *(
        path
        for folder in ("python", "rust", "scripts", "bench", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in {".py", ".pyi", ".rs", ".toml"} and path != Path(__file__).resolve()
    ),
)
# names of files that a test invents, or that a run writes
INVENTED = re.compile(r"DATE-|/test_x\.py$|^python/object/")


def test_files_that_code_names_exist() -> None:
    """A path in a comment, docstring or recipe leads to a file; `docs/adr/0012` is short for its page."""
    path = re.compile(r"(?<![\w/.{:<-])((?:python|rust|tests|docs|bench|scripts)(?:/[\w.-]+)+)(?![\w/{}*<-])")
    gone = set()
    for source in CODE:
        for name in {name.rstrip(".-") for name in path.findall(source.read_text())}:
            found = any(
                (root / name).exists() or next(root.glob(f"{name}[-.]*"), None)
                for root in (ROOT, ROOT / "rust", *source.parents[:3])
            )
            if not found and not INVENTED.search(name):
                gone.add(f"{source.relative_to(ROOT)}: {name}")
    assert gone == set()


def test_modules_that_texts_name_exist() -> None:
    """`eomirror.package.module` between backticks is a module, or a name that a package offers."""
    package = ROOT / "python" / "eomirror"
    folders = "|".join(sorted(path.name for path in package.iterdir() if (path / "__init__.py").exists()))
    module = re.compile(rf"`eomirror\.({folders})\.(\w+)")
    documents = [path for path in DOCUMENTS if path.parent.name != "reports"]
    named = {
        (source, *names) for source in (*CODE, *documents) for names in module.findall(source.read_text())
    }
    gone = {
        f"{source.relative_to(ROOT)}: eomirror.{folder}.{name}"
        for source, folder, name in named
        if not any((package / folder / file).exists() for file in (f"{name}.py", name))
        and name not in (package / folder / "__init__.py").read_text()
    }
    assert gone == set()


def test_generated_parts_are_current() -> None:
    """DESIGN.md draws the states as the lane's table has them."""
    command = [sys.executable, "scripts/lane_states.py", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stderr


def test_reports_and_results_are_cited() -> None:
    """A dated report or result stays in the tree only while a README cites it; pages hold their figures themselves."""
    text = "\n".join(path.read_text() for path in (ROOT / "README.md", ROOT / "bench" / "README.md"))
    dated = [*(ROOT / "docs" / "reports").glob("20*"), *(ROOT / "bench" / "results").glob("20*")]
    assert sorted(path.name for path in dated if path.stem not in text) == []


@pytest.mark.parametrize(
    ("document", "lines"), [("README.md", 120), ("DESIGN.md", 330), ("CHANGELOG.md", 50)]
)
def test_the_front_door_stays_short(document: str, lines: int) -> None:
    """A newcomer reads these to the end."""
    assert len((ROOT / document).read_text().splitlines()) <= lines


def test_the_reference_pages_say_what_the_code_says() -> None:
    """Commands, exit codes and outputs of offline commands are generated: `just docs` after a change."""
    command = [sys.executable, "scripts/docs_reference.py", "--check"]
    check = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert check.returncode == 0, check.stderr


def test_every_exit_code_of_an_error_has_a_meaning() -> None:
    """The table of exit codes covers every class of errors."""
    kinds = [errors.MirrorError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    assert {kind.exit_code for kind in kinds} <= set(errors.EXIT_CODES)


_BLOCK = re.MULTILINE | re.DOTALL
PAGES_WITH_CONFIGURATIONS = ("configure.md", "quick-start.md")


@pytest.mark.parametrize("page", PAGES_WITH_CONFIGURATIONS)
def test_configurations_on_pages_are_valid(page: str, tmp_path: Path) -> None:
    """A configuration that a reader copies from a page has no fault."""
    text = (ROOT / "docs" / page).read_text()
    text = re.sub(r'^```yaml title="docs/examples/faults/.*?^```$', "", text, flags=_BLOCK)
    blocks = re.findall(r"^```yaml[^\n]*\n(.*?)^```$", text, flags=_BLOCK)
    assert blocks
    for number, block in enumerate(blocks):
        path = tmp_path / f"{number}.yaml"
        path.write_text(block)
        assert load_config(path, environ={"EAST_PASSWORD": "x"}).links


@pytest.mark.parametrize(
    ("page", "example"),
    [
        ("configure.md", "faults/bad.yaml"),
        ("migrate-from-mirrormaker2.md", "mm2.properties"),
        ("quick-start.md", "quick-start/mirror.yaml"),
    ],
)
def test_other_examples_are_on_their_pages(page: str, example: str) -> None:
    """A file whose output a page shows is on that page as it is."""
    text = (ROOT / "docs" / "examples" / example).read_text()
    assert f"\n{text}```\n" in (ROOT / "docs" / page).read_text()


_EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.yaml"))


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda path: path.stem)
def test_an_example_of_a_topology_has_no_fault_and_a_whole_page(example: Path) -> None:
    """`check` finds nothing, and the page has the file, outputs of three commands, and what every page tells."""
    assert CliRunner().invoke(cli, ["check", str(example), "-o", "json"]).exit_code == 0
    config = load_config(example)
    assert config.links
    assert config.warnings == ()
    page = (ROOT / "docs" / "topologies" / f"{example.stem}.md").read_text()
    assert f'```yaml title="docs/examples/{example.name}"\n{example.read_text()}```\n' in page
    assert re.findall(r"^## (.+)$", page, flags=re.MULTILINE) == [
        "Run it",
        "Consume",
        "Verify",
        "What goes wrong",
    ]
    outputs = re.findall(
        r"<!-- output (?:of|on clusters): eomirror (\w+) .*?-->\n+ *```text\n(.*?)```", page, _BLOCK
    )
    compares = "verify" if all(link.query is None for link in config.links) else "status"
    assert {"check", "run", compares} <= {command for command, text in outputs if text.strip()}
    assert f"topologies/{example.stem}.md" in (ROOT / "docs" / "topologies.md").read_text()


def test_every_example_of_a_topology_has_a_scenario_on_real_clusters() -> None:
    """tests/topologies/test_examples.py runs each file."""
    assert {path.stem for path in _EXAMPLES} == set(SCENARIOS)


def test_messages_of_the_troubleshooting_page_exist() -> None:
    """An operator searches the page for the words of the error."""
    code = "".join(path.read_text() for path in (*CODE, *(ROOT / "rust").rglob("*.rs")))
    texts = re.sub(r'"\s*f?"', "", code)
    page = (ROOT / "docs" / "troubleshoot.md").read_text()
    table = page.partition("## Data loss")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    symptoms = re.findall(r"\*\*Symptom\.\*\*(.*?)\n\n", page, re.DOTALL)
    messages = {each for text in (*rows, *symptoms) for each in re.findall(r"`([^`]+)`", text) if " " in each}
    assert len(messages) > 10
    parts = {part.strip() for each in messages for part in each.split("...")} - {""}
    assert sorted(part for part in parts if part not in texts) == []


def test_log_events_of_the_troubleshooting_page_exist() -> None:
    """An event that a reader looks for in the log is one that the code writes."""
    table = (ROOT / "docs" / "troubleshoot.md").read_text().split("## Log events")[1]
    events = set(
        re.findall(r"`([a-z]+(?:_[a-z]+)+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE)))
    )
    source = "".join(path.read_text() for path in (ROOT / "python" / "eomirror").rglob("*.py"))
    assert len(events) > 20
    assert {event for event in events if f'"{event}"' not in source} == set()


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """scripts/docs_hooks.py, which MkDocs loads by its path as well."""
    spec = importlib.util.spec_from_file_location("docs_hooks", ROOT / "scripts" / "docs_hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "page",
    [
        '<link href="https://fonts.googleapis.com/css?family=Roboto" rel="stylesheet">',
        "<link rel=stylesheet href=//cdn.example/site.css>",
        '<script async src="https://unpkg.com/mermaid@11/dist/mermaid.min.js"></script>',
        '<img alt="a badge" src="http://img.example/badge.svg">',
        '<iframe src="https://video.example/1"></iframe>',
    ],
)
def test_an_asset_of_another_host_fails_the_site(hooks: ModuleType, tmp_path: Path, page: str) -> None:
    """The build refuses scripts, styles, fonts and images that a browser would load from elsewhere."""
    (tmp_path / "index.html").write_text(f"<p>text</p>{page}")
    with pytest.raises(PluginError, match=r"index\.html"):
        hooks.seal(tmp_path)


def test_a_font_of_another_host_fails_the_site(hooks: ModuleType, tmp_path: Path) -> None:
    """Style sheets are looked through as well."""
    (tmp_path / "site.css").write_text("@font-face {src: url('https://fonts.example/roboto.woff2')}")
    with pytest.raises(PluginError, match=r"roboto\.woff2"):
        hooks.seal(tmp_path)


def test_a_link_to_another_host_is_no_asset(hooks: ModuleType, tmp_path: Path) -> None:
    """A reader may follow a link; a script of the theme loads nothing on demand."""
    (tmp_path / "index.html").write_text('<a href="https://kafka.apache.org/">Kafka</a><img src=logo.svg>')
    (tmp_path / "bundle.js").write_text('load("https://unpkg.com/mermaid@11/dist/mermaid.min.js")')
    hooks.seal(tmp_path)
    assert (tmp_path / "bundle.js").read_text() == 'load("")'


def test_links_of_the_repository_become_links_of_the_site(hooks: ModuleType) -> None:
    """Documents become pages, code becomes text, examples in fences stay."""
    text = (
        "[design](../DESIGN.md#rules) [why](adr/README.md) [code](../scripts/ci.py) [read](../README.md)\n"
        "```md\n[design](../DESIGN.md)\n```\n"
    )
    assert hooks.with_site_links(text, "docs/page.md", "page.md") == (
        "[design](design.md#rules) [why](adr/README.md) code [read](index.md)\n"
        "```md\n[design](../DESIGN.md)\n```\n"
    )


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


def test_the_design_names_every_package() -> None:
    """The table of layers has each package and top-level module of the contract in pyproject.toml."""
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    lines = next(contract["layers"] for contract in contracts if contract["name"] == "packages")
    names = {name for line in lines for name in re.findall(r"eomirror\.(\w+)", line)} - {"__main__"}
    table = (ROOT / "DESIGN.md").read_text().split("\n## Layers\n")[1]
    assert {name for name in names if not re.search(rf"`{name}(\.py)?`", table)} == set()


def test_rules_have_ids_without_holes() -> None:
    """Twelve rules, EO-1 to EO-12, each defined once."""
    ids = re.findall(r"^\| (EO-\d+) \|", (ROOT / "DESIGN.md").read_text(), flags=re.MULTILINE)
    assert ids == [f"EO-{number}" for number in range(1, 13)]

"""
MkDocs hooks of the documentation site (mkdocs.yml).

- Documents that live outside of docs/, such as DESIGN.md, become pages of the site.
- Links are written for readers of the repository.  A link to a document becomes a link to its page; a link to
  source code becomes text, because the site does not carry the code.
- The theme loads Mermaid and a polyfill from a public host on demand.  Both addresses are removed.
- The build fails if a page or a style sheet loads anything from another host.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent

#: document of the repository -> page of the site
OUTSIDE = {
    "DESIGN.md": "design.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "bench/README.md": "benchmark.md",
}
#: folders whose documents become pages when a page links to them
RESULTS = ("bench/results/", "results/")
#: documents that another page replaces
REPLACED = {"README.md": "index.md", "docs": "index.md", "docs/adr": "adr/README.md"}

_LINK = re.compile(r"(?P<image>!?)\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<to>[^)\s]+)\)")
_FENCE = re.compile(r"^(```.*?^```[ \t]*$)", flags=re.MULTILINE | re.DOTALL)
_LOADED = re.compile(
    r"""<(?:link|script|img|iframe|source|video|audio|embed|object|image|use)\b[^>]*?\b"""
    r"""(?:href|src|srcset|data|xlink:href)\s*=\s*["']?\s*((?:https?:)?//[^"'\s>]+)""",
    flags=re.IGNORECASE,
)
_CSS = re.compile(r"""(?:url\(\s*["']?|@import\s+["'])((?:https?:)?//[^"')\s]+)""", flags=re.IGNORECASE)
_ON_DEMAND = re.compile(r"https://unpkg\.com/[A-Za-z0-9@./_-]+")


def page_of(path: str) -> str | None:
    """
    Returns the page of the site that shows a file of the repository.

    Args:
        path: Relative to the root of the repository.

    Returns:
        The page's path below docs/, or None if the site does not show the file.
    """
    path = path.rstrip("/")
    if page := REPLACED.get(path) or OUTSIDE.get(path):
        return page
    if path.startswith(RESULTS[0]) and path.endswith(".md"):
        return RESULTS[1] + path.removeprefix(RESULTS[0])
    if path.startswith("docs/") and not path.endswith(".jsonl") and (ROOT / path).is_file():
        return path.removeprefix("docs/")
    return None


def with_site_links(text: str, path: str, page: str) -> str:
    """
    Returns a document with its links changed from the repository's files to pages of the site.

    Args:
        text: The document, in Markdown.
        path: The document's path in the repository.
        page: Its path below docs/, as the site sees it.
    """

    def replace(link: re.Match[str]) -> str:
        to, hash_, anchor = link["to"].partition("#")
        if "://" in to or to.startswith("mailto:") or not to:
            return link[0]
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), to))
        found = page_of(target)
        if found is None:
            # a link to a file that does not exist stays, and fails the build
            return link["text"] if (ROOT / target).exists() else link[0]
        relative = posixpath.relpath(found, posixpath.dirname(page) or ".")
        return f"{link['image']}[{link['text']}]({relative}{hash_}{anchor})"

    parts = _FENCE.split(text)
    return "".join(part if part.startswith("```") else _LINK.sub(replace, part) for part in parts)


def external_assets(text: str, *, css: bool = False) -> list[str]:
    """Returns addresses on other hosts from which a page, or a style sheet, loads something."""
    return (_CSS if css else _LOADED).findall(text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the documents that live outside of docs/."""
    results = (ROOT / RESULTS[0]).glob("*.md")
    outside = {**OUTSIDE, **{f"{RESULTS[0]}{path.name}": f"{RESULTS[1]}{path.name}" for path in results}}
    for path, page in outside.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Points the links of a page to the site."""
    uri = page.file.src_uri
    paths = {shown: path for path, shown in OUTSIDE.items()}
    path = paths.get(uri, f"docs/{uri}")
    if uri.startswith(RESULTS[1]):
        path = RESULTS[0] + uri.removeprefix(RESULTS[1])
    return with_site_links(markdown, path, uri)


def on_post_build(config: MkDocsConfig) -> None:
    """Checks the built site."""
    seal(Path(config.site_dir))


def seal(site: Path) -> None:
    """
    Removes the theme's addresses of other hosts, then refuses a site that still loads from one.

    Args:
        site: Folder of the built site.

    Raises:
        PluginError: A page or a style sheet loads from another host; the message names all of them.
    """
    for script in site.rglob("*.js"):
        script.write_text(_ON_DEMAND.sub("", script.read_text()))
    for source_map in site.rglob("*.map"):
        source_map.unlink()
    found = [
        f"{path.relative_to(site)}: {address}"
        for path in sorted(site.rglob("*"))
        if path.suffix in {".html", ".css"}
        for address in external_assets(path.read_text(), css=path.suffix == ".css")
    ]
    if found:
        raise PluginError("the site loads from other hosts:\n  " + "\n  ".join(found))

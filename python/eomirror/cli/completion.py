"""``eomirror completion``: shell completion, with the link, topic and group names of the configuration."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, get_completion_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eomirror.config import Cluster, Config

    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

__all__ = ["complete_groups", "complete_links", "complete_topics", "completion", "quote_names_in_bash"]

#: a user waits at the prompt for the answer
_SECONDS: Final = 2.0
_CLIENT_ID: Final = "eomirror.completion"

_SHELLS: Final = ("bash", "zsh", "fish")

#: a word that bash neither splits nor expands, also at COMP_WORDBREAKS
_PLAIN: Final = re.compile(r"[\w%+,./-]*", re.ASCII)

_QUOTES: Final = ("'", '"')

#: what stands for a character within each quotation
_ESCAPES: Final = {
    "'": str.maketrans({"'": "'\\''"}),
    '"': str.maketrans({each: f"\\{each}" for each in '\\"$`'}),
}


def quote_names_in_bash() -> None:
    """Replaces click's completion for bash by one that quotes names."""
    add_completion_class(_QuotingBashComplete)


class _QuotingBashComplete(BashComplete):
    """
    Completion for bash that quotes names; the other shells do that themselves.

    Bash puts a name into the command line as it is. Without quotes `east->west` would redirect the output to a file,
    and a group may be called `$(...)`.
    """

    def complete(self) -> str:
        """Returns one line for each item: its type, a comma, its value as the command line needs it."""
        items = self.get_completions(*self.get_completion_args())
        opened = _current_word()[:1]
        # bash writes what all items begin with into the command line, so all or none of them have a quote
        quoted = opened in _QUOTES or not all(_PLAIN.fullmatch(str(item.value)) for item in items)
        lines = []
        for item in items:
            text = str(item.value)
            if item.type == "plain" and quoted:
                text = text.translate(_ESCAPES[opened if opened in _QUOTES else "'"])
                text = text if opened in _QUOTES else f"'{text}'"
            # the script reads the line with `read`, which removes one backslash of two
            lines.append(f"{item.type},{text}".replace("\\", "\\\\"))
        return "\n".join(lines)

    def get_completion_args(self) -> tuple[list[str], str]:
        """Returns the words before the current one, and the current one."""
        words, current = super().get_completion_args()
        # bash makes three words of --link=east
        return (words[:-1] if words[-1:] == ["="] else words), current


def _current_word() -> str:
    words = os.environ["COMP_WORDS"].split("\n")
    number = int(os.environ["COMP_CWORD"])
    return words[number] if number < len(words) else ""


@click.command(epilog='Example: eval "$(eomirror completion bash)"')
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> int:
    """
    Print the completion script of SHELL; evaluate it in the start-up file of the shell.

    Commands and options are completed, and behind CONFIG the names of links (--link), of source topics (--topic,
    --topics) and of consumer groups (--group). Topics and groups are read from the source clusters, within 2 s.

    Exit codes: 0 printed, 2 another shell.
    """
    from eomirror.cli.app import cli

    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells of the argument"  # noqa: S101  for the type checker
    click.echo(kind(cli, {}, "eomirror", "_EOMIRROR_COMPLETE").source())
    return 0


def _completes(names: Callable[[Config], Iterable[str]]) -> Complete:
    def complete(context: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # this process ends with the answer; what it logged would stand in the user's command line
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        try:
            from eomirror.config import load_config
            from eomirror.log import configure_logging

            configure_logging("error", "json")
            # click leaves the argument among the unparsed ones while an option waits for its value
            config = context.params.get("config") or context.args[0]
            found = names(load_config(config))
            # click separates items by line ends, which the name of a group may contain
            return [
                CompletionItem(name)
                for name in sorted(set(found))
                if name.startswith(incomplete) and name.isprintable()
            ]
        except Exception:  # noqa: BLE001  the shell completes nothing, as behind a word that is no option
            return []

    return complete


def _links(config: Config) -> Iterable[str]:
    return [link.name for link in config.links]


def _sources(config: Config) -> Iterable[Cluster]:
    return [config.clusters[alias] for alias in sorted({link.source for link in config.links})]


def _topics(config: Config) -> Iterator[str]:
    from eomirror.kafka.session import ClusterSession
    from eomirror.topology.filters import internal_reason

    for cluster in _sources(config):
        session = ClusterSession(cluster, client_id=_CLIENT_ID, timeout=_SECONDS)
        try:
            yield from (name for name in session.admin.topic_names() if not internal_reason(name))
        finally:
            session.close()


def _groups(config: Config) -> Iterator[str]:
    from eomirror.kafka.consumer_groups import GroupCoordinators

    for cluster in _sources(config):
        groups = GroupCoordinators(cluster, _CLIENT_ID, seconds=_SECONDS)
        try:
            yield from groups.names(strict=False)[0]
        finally:
            groups.close()


complete_links = _completes(_links)
complete_topics = _completes(_topics)
complete_groups = _completes(_groups)

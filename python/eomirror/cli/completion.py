"""``eomirror completion``: shell completion, with the link, topic and group names of the configuration."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem, get_completion_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from eomirror.config import Cluster, Config

    Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]

__all__ = ["complete_groups", "complete_links", "complete_topics", "completion"]

#: a user waits at the prompt for the answer
_SECONDS: Final = 2.0
_CLIENT_ID: Final = "eomirror.completion"

_SHELLS: Final = ("bash", "zsh", "fish")


@click.command(epilog='Example: eval "$(eomirror completion bash)"')
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> int:
    """
    Print the completion script of SHELL; evaluate it in the start-up file of the shell.

    Commands and options are completed, and behind CONFIG the names of links (--link), of source topics (--topic)
    and of consumer groups (--group). Names of topics and groups are read from the source clusters, within 2 s.

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
            return [CompletionItem(name) for name in sorted(set(found)) if name.startswith(incomplete)]
        except Exception:  # noqa: BLE001  the shell completes nothing, as behind a word that is no option
            return []

    return complete


def _links(config: Config) -> Iterable[str]:
    return [link.name for link in config.links]


def _sources(config: Config) -> Iterable[Cluster]:
    return [config.clusters[alias] for alias in sorted({link.source for link in config.links})]


def _topics(config: Config) -> Iterator[str]:
    from eomirror.kafka.session import ClusterSession

    for cluster in _sources(config):
        session = ClusterSession(cluster, client_id=_CLIENT_ID, timeout=_SECONDS)
        try:
            yield from session.admin.topic_names()
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

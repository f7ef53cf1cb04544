"""
Writes the commented configuration of ``eomirror init``. Pure.

The settings under ``defaults`` come from the fields of `Link`, each as a comment with its default and its description,
so the file never names a setting that a release does not know.
"""

from __future__ import annotations

import json
import textwrap
from dataclasses import dataclass

from eomirror.config.model import LINK_SETTINGS

__all__ = ["Starter", "starter_configuration"]

_WIDTH = 100
#: settings that the file sets on the link itself
_ON_THE_LINK = frozenset({"source", "target", "topics", "naming", "groups"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Starter:
    """
    Values of a new configuration.

    Attributes:
        source: Alias and bootstrap brokers of the source cluster.
        target: Alias and bootstrap brokers of the target cluster.
        topics: Full-match regular expressions of source topics.
        naming: ``prefix`` or ``identity``.
        file: Name of the file, for the commands in its first lines.
    """

    source: tuple[str, str]
    target: tuple[str, str]
    topics: tuple[str, ...]
    naming: str
    file: str


_HEAD = """\
# Configuration of eomirror: clusters, and the links between them.
#
#   eomirror check FILE     reports every fault of this file, without connecting
#   eomirror plan FILE      shows what `run` would create, change and delete, and names missing ACLs
#   eomirror apply FILE     does what `plan` shows, without mirroring records
#   eomirror run FILE       mirrors until stopped
#   eomirror status FILE    shows lag and problems, also without a running mirror
#   eomirror verify FILE    compares every record with its source

clusters:
  # Every librdkafka client property may be set here. Keep secrets out of the file:
  #   security.protocol: SASL_SSL
  #   sasl.mechanism: SCRAM-SHA-512
  #   sasl.username: mirror
  #   sasl.password: ${env:KAFKA_PASSWORD}        # or ${file:/run/secrets/kafka}
  #   ssl.ca.location: /etc/ssl/certs/kafka-ca.pem
"""


def starter_configuration(starter: Starter) -> str:
    """Returns the text of a valid configuration with one link and every other setting as a comment."""
    text = [_HEAD.replace("FILE", starter.file)]
    for alias, brokers in (starter.source, starter.target):
        text.append(f"  {alias}:\n    bootstrap.servers: {json.dumps(brokers)}\n")
    text.append(
        "\nlinks:\n"
        f"  - source: {starter.source[0]}\n"
        f"    target: {starter.target[0]}\n"
        "    # Full-match regular expressions of source topics. Internal topics are never mirrored.\n"
        f"    topics: {json.dumps(list(starter.topics))}\n"
        f"    # prefix: orders becomes {starter.source[0]}.orders on the target; identity: it keeps its name.\n"
        f"    naming: {starter.naming}\n"
        "    # Consumer groups whose offsets are translated; [] for none.\n"
        '    groups: [".*"]\n'
        f"{''.join(_as_comment(name, indent=4) for name in _of_one_link())}"
        "\n# Settings of all links, with their defaults; each may also stand on a link.\n"
        "defaults:\n"
        f"  # {LINK_SETTINGS['lanes'].text}\n"
        f"  lanes: {LINK_SETTINGS['lanes'].shown}\n"
    )
    for name, each in LINK_SETTINGS.items():
        if each.shareable and name not in _ON_THE_LINK and name != "lanes":
            text.append("\n" + _as_comment(name, indent=2))
    return "".join(text)


def _of_one_link() -> list[str]:
    """Returns the settings that only a link has, but for its name and those that the file sets."""
    return [
        name
        for name, each in LINK_SETTINGS.items()
        if not each.shareable and name not in _ON_THE_LINK and name != "name"
    ]


def _as_comment(name: str, *, indent: int) -> str:
    """Returns the description of a setting, and the setting with its default, as comments."""
    each, begin = LINK_SETTINGS[name], " " * indent
    lines = textwrap.wrap(each.text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    value = "  # unset by default" if each.shown == "unset" else f" {each.shown}"
    return "".join(f"{begin}# {line}\n" for line in (*lines, f"{name}:{value}"))

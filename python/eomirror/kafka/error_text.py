"""
Removes secrets from librdkafka's messages.

librdkafka repeats the part of ``sasl.oauthbearer.config`` that its parser of unsecured tokens does not understand.  The
value may hold a client's secret, in any format that a token endpoint or a user's function defines.  It comes through
error callbacks, where the clusters' properties are unavailable.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eomirror.config.secret import MASK

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

__all__ = ["said", "without_values"]

_PROPERTY = "sasl.oauthbearer.config"
# what librdkafka says of the value without a part of it; its own names of fields end in "="
_HARMLESS = re.compile(
    r"sasl\.oauthbearer\.config: (?:no principal=<value>|(?:empty|multiple) '[A-Za-z_]+=?'(?: entries)?)\Z"
)


def said(error: KafkaError) -> str:
    """Returns the text of an error, or its name if it has none, without values of properties."""
    return without_values(str(error.str() or error.name()))


def without_values(text: str) -> str:
    """
    Returns a message of librdkafka without its quotes of ``sasl.oauthbearer.config``.

    Args:
        text: An error's text, or a line of its log.
    """
    at = text.find(_PROPERTY)
    if at < 0 or _HARMLESS.match(text, at):
        return text
    return f"{text[: at + len(_PROPERTY)]}: {MASK} (the rest may show a secret)"

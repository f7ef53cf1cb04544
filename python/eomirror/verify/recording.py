"""Writes results of comparisons to the control topic of a link, where status, page and metrics show them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.kafka.client_factory import secret_hider
from eomirror.kafka.plain_producer import write_records
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.config import Config, Link
    from eomirror.records.reports import TailComparison, Verification

__all__ = ["record"]

# a target that takes no records must not hold up the result
_WRITE_SECONDS = 10.0


def record(config: Config, link: Link, found: Sequence[Verification | TailComparison]) -> str:
    """
    Writes results of a link to its target; a reason that shows a secret of the configuration is hidden.

    Returns:
        Reason that they were not written; empty if they were.
    """
    hide = secret_hider(config.clusters.values())
    shown = [replace(one, problem=hide(one.problem)) for one in found]
    names = LinkNames(link.state_name)
    failed = write_records(
        config.clusters[link.target],
        names.control_topic,
        [(one.key(), one.value()) for one in shown],
        client_id=names.client_id("verify-report"),
        seconds=_WRITE_SECONDS,
    )
    return f"{failed}; fix: allow Write on topic {names.control_topic}" if failed else ""

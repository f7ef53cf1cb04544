"""The last word of a fault test: the target's logs hold whole transactions, one chain, and nothing open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.verify.transactions import TransactionAudit, audit_link

if TYPE_CHECKING:
    from eomirror.config import Config

# a killed lane's transaction is open until its timeout, if no successor ends it (contract.md: 15 s)
_SETTLE_SECONDS = 25.0


def assert_audited(
    config: Config, link: str = "", *, at_rest: bool = True, complete: bool = True
) -> TransactionAudit:
    """
    Audit a link whose mirror has stopped, and fail with the findings if there are any.

    Args:
        config: As `eomirror.load_config` gives it.
        link: Name of the link; may be left out when there is one.
        at_rest: False while it may still write.
        complete: False if compaction has removed positions; a test that lasts so long audits now and then.
    """
    chosen = [item for item in config.links if not link or item.name == link]
    assert len(chosen) == 1, f"name one of {[item.name for item in config.links]}"
    target = config.clusters[chosen[0].target]
    audit = audit_link(chosen[0], target, at_rest=at_rest, settle=_SETTLE_SECONDS)
    assert audit.clean, "\n".join(map(str, audit.findings))
    # the clusters of a test are young: nothing of their logs was removed
    assert audit.complete or not complete, audit.to_json()
    return audit

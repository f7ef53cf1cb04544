"""
Records of a recreation: topics of an old source are deleted, and copied back whole by the link back. Pure.

* ``{"kind":"recreation"}`` -> `Recreation`, in the control topic of the promoted link: what was checked and decided
  before the first topic was deleted.  Afterwards nothing can check it again.  It is written once more when the topics
  are copied back, and stays until the next one.
* ``{"kind":"copy-back"}`` -> `CopyBack`, in the control topic of the link back.  Until it is done, only the recreation
  may run that link: its loop guard would drop what the old source once wrote.  A reversal orders the same, if the old
  source has lost records that the copies hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eomirror.records.control_record import FailoverRecord, SingleRecord, control_record, named

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CopyBack", "Recreation"]


@control_record("recreation", deleted=("recreation", "the recreation record is deleted"))
@dataclass(frozen=True, slots=True, kw_only=True)
class Recreation(FailoverRecord, SingleRecord):
    """
    Decision to delete topics of the old source.

    Attributes:
        number: Number of the promotion.
        link: Name of the link back.
        topics: Source topic -> id of the topic that is deleted; empty for a decision that was withdrawn.
        ends: Source topic -> partition -> log end up to which it was compared.
        records: Orphans of the promotion, as the restoration before has counted them.
        place: Topic or file that holds exported orphans; empty for none.
        done: True once the topics are copied back.
        run: Run that decided it.
        timestamp: Milliseconds since the epoch.
    """

    number: int
    link: str
    topics: Mapping[str, Any]
    ends: Mapping[str, Any]
    records: int
    place: str
    done: bool
    run: str
    timestamp: int

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        if not self.topics:
            return f"no topic of the old source is deleted after promotion {self.number}: that was withdrawn"
        names = named(sorted(self.topics))
        if self.done:
            return f"{self.link} has copied back whole, after promotion {self.number}: {names}"
        where = f"deleted on the old source after promotion {self.number}"
        return f"{where}, to be copied back whole by {self.link}: {names}"


@control_record("copy-back", deleted=("copy-back", "the copy-back record is deleted"))
@dataclass(frozen=True, slots=True, kw_only=True)
class CopyBack(FailoverRecord, SingleRecord):
    """
    Order that a link copies topics back whole, whatever their records have passed.

    Attributes:
        link: Name of the promoted link.
        number: Number of its promotion.
        done: True once everything is copied back.
        until: When it is done: topic -> partition -> offset up to which all was copied, whatever it had passed.
        run: Run that ordered it.
        timestamp: Milliseconds since the epoch.
        command: Command that ordered it, and goes on with it when it is repeated.
    """

    link: str
    number: int
    done: bool
    until: Mapping[str, Any]
    run: str
    timestamp: int
    command: str = "restore"

    def sentence(self) -> str:
        """Returns the text of the record in the timeline."""
        verb = "has copied" if self.done else "copies"
        return f"the link {verb} topics back whole, after promotion {self.number} of {self.link}"

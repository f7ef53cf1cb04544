"""
Names of the link's own topics, transactional ids and clients (contract.md); only this module formats them. Pure.

LINK is `config.Link.state_name`: ``source.target``, or the link's own name.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HOPS_HEADER", "INTERNAL_TOPICS", "LinkNames", "ReadersTopics", "StateTopics"]

#: The provenance header, the only change to a mirrored record; `verify` ignores it.
HOPS_HEADER = "eomirror.hops"

#: Full-match regular expression of topics that are never mirrored, whatever the filters.
INTERNAL_TOPICS = r"eomirror\..*"


@dataclass(frozen=True, slots=True)
class StateTopics:
    """The link's state topics that a lane writes, with their partition counts."""

    positions: str
    positions_partitions: int
    offset_map: str
    offset_map_partitions: int
    dead_letter: str = ""


@dataclass(frozen=True, slots=True)
class ReadersTopics:
    """
    MM2's topics that a lane writes in the transaction of the records, of one partition each.

    Attributes:
        checkpoints: Topic of checkpoints; empty without followed groups.
        offset_syncs: Topic of offset syncs; empty if they go to the source or are off.
    """

    checkpoints: str = ""
    offset_syncs: str = ""


@dataclass(frozen=True, slots=True)
class LinkNames:
    """Names that belong to one link; all topics are on the target cluster."""

    link: str

    @property
    def control_topic(self) -> str:
        """Topic of generation, lanes, claim of the owner and accepted gaps; 1 partition."""
        return f"eomirror.{self.link}.control"

    @property
    def positions_topic(self) -> str:
        """Topic of positions of source partitions; lane n writes to partition n modulo the count."""
        return f"eomirror.{self.link}.positions"

    @property
    def offset_map_topic(self) -> str:
        """Topic of the offset map from source to target offsets."""
        return f"eomirror.{self.link}.offset-map"

    @property
    def dead_letter_topic(self) -> str:
        """Topic of records that the target refuses, with ``on_refused: dead-letter``; 1 partition."""
        return f"eomirror.{self.link}.dead-letter"

    @property
    def orphans_topic(self) -> str:
        """Topic of exported orphans (`eomirror restore --orphans export --to-topic`); 1 partition."""
        return f"eomirror.{self.link}.orphans"

    @property
    def control_transactional_id(self) -> str:
        """Transactional id of the control producer."""
        return f"eomirror.{self.link}.control"

    def transactional_id(self, lane: int) -> str:
        """Returns the transactional id of a lane: a newer attempt with the same id fences an older one."""
        return f"eomirror.{self.link}.{lane}"

    def client_id(self, role: str) -> str:
        """Returns the client id for brokers' logs and quotas."""
        return f"eomirror.{self.link}.{role}"

"""
The only place that formats the names of our own topics, ids and clients (contract.md). Pure.

LINK is `config.Link.state_name`: ``source.target``, or the link's own name.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["HOPS_HEADER", "INTERNAL_TOPICS", "LinkNames", "ReadersTopics", "StateTopics"]

#: Our one provenance header; `verify` ignores it, everything else about a record is the source's.
HOPS_HEADER = "eomirror.hops"

#: Full-match regular expression of topics that are never mirrored, whatever a filter says.
INTERNAL_TOPICS = r"eomirror\..*"


@dataclass(frozen=True, slots=True)
class StateTopics:
    """The link's topics that a lane writes, with their partition counts."""

    positions: str
    positions_partitions: int
    offset_map: str
    offset_map_partitions: int
    dead_letter: str = ""


@dataclass(frozen=True, slots=True)
class ReadersTopics:
    """
    Topics of MM2's readers that a lane writes to in the data's transaction, of one partition each.

    Attributes:
        checkpoints: Of followed groups; empty without any.
        offset_syncs: Empty where they go elsewhere, or nowhere.
    """

    checkpoints: str = ""
    offset_syncs: str = ""


@dataclass(frozen=True, slots=True)
class LinkNames:
    """Names that belong to one link; all topics are on the target cluster."""

    link: str

    @property
    def control_topic(self) -> str:
        """Generation, lanes, claim of the owner, accepted gaps; 1 partition."""
        return f"eomirror.{self.link}.control"

    @property
    def positions_topic(self) -> str:
        """Next offset to fetch per source partition; lane n writes to partition n modulo the count."""
        return f"eomirror.{self.link}.positions"

    @property
    def offset_map_topic(self) -> str:
        """Which source offsets became which target offsets."""
        return f"eomirror.{self.link}.offset-map"

    @property
    def dead_letter_topic(self) -> str:
        """Records that the target refuses, with ``on_refused: dead-letter``; 1 partition."""
        return f"eomirror.{self.link}.dead-letter"

    @property
    def control_transactional_id(self) -> str:
        """Of the one producer that writes the control topic."""
        return f"eomirror.{self.link}.control"

    def transactional_id(self, lane: int) -> str:
        """Of the lane's producer: a newer attempt with the same id fences an older one."""
        return f"eomirror.{self.link}.{lane}"

    def client_id(self, role: str) -> str:
        """What brokers see in their logs and quotas."""
        return f"eomirror.{self.link}.{role}"

"""What `run --listen` and `serve` show of one link, without a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
from prometheus_client.parser import text_string_to_metric_families

from eomirror.serve.http import Request
from eomirror.serve.polled import PolledEndpoints
from eomirror.serve.running import RunningEndpoints
from eomirror.status.live import LinkFacts
from eomirror.status.reader import StatusReader

if TYPE_CHECKING:
    from eomirror.config import Config

__all__ = ["Views"]


class Views:
    """
    Both views; a mirror hands its snapshots to ``run.update``.

    Args:
        config: Configuration.
        name: Name of the link.
    """

    def __init__(self, config: Config, name: str) -> None:
        link = config.link(name)
        self._name = name

        def reader() -> StatusReader:
            return StatusReader(link, config.clusters[link.source], config.clusters[link.target])

        self.run = RunningEndpoints([link], version="test", readers={name: reader})
        self.serve = PolledEndpoints({LinkFacts.of(link): reader}, version="test")
        self.run.start()
        self.serve.start()

    def close(self) -> None:
        """Ends their threads."""
        self.run.close()
        self.serve.close()

    def loss(self) -> list[str]:
        """The sentence of both about a failover; empty before they know the link."""
        return [
            str(orjson.loads(body).get("failover", ""))
            for body in self._bodies("api", "v1", "links", self._name)
        ]

    def pages(self) -> list[str]:
        """The page of the link of both."""
        return [body.decode() for body in self._bodies("links", self._name)]

    def exported(self) -> list[float]:
        """The loss in the metrics of both, as far as they export one."""
        return [
            sample.value
            for body in self._bodies("metrics")
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
            if sample.name == "eomirror_failover_loss_records"
        ]

    def _bodies(self, *path: str) -> list[bytes]:
        return [place.answer(Request(path)).body for place in (self.run, self.serve)]

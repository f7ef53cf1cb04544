"""The ends that the demo's judge compares: a broker that stands still for a moment is asked again."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from eomirror.demo.clients import Offsets
from eomirror.errors import ClusterError
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    from collections.abc import Callable


class Broker:
    """An admin client whose first requests fail."""

    def __init__(self, error: int, times: int) -> None:
        self._error, self._left = error, times

    def list_topics(self, *_: object, **__: object) -> Any:
        self._fail()
        return SimpleNamespace(topics={"t": SimpleNamespace(error=None, partitions={0: None, 1: None})})

    def list_offsets(self, asked: Any, **_: object) -> Any:
        done: dict[Any, Future[Any]] = {where: Future() for where in asked}
        for future in done.values():
            try:
                self._fail()
            except KafkaException as error:
                future.set_exception(error)
            else:
                future.set_result(SimpleNamespace(offset=7))
        return done

    def _fail(self) -> None:
        if self._left:
            self._left -= 1
            raise KafkaException(KafkaError(self._error))


QUESTIONS = pytest.mark.parametrize(
    ("question", "answer"),
    [
        (lambda offsets: offsets.partitions("t"), 2),
        (lambda offsets: offsets.ends("t", 2, committed=True), {0: 7, 1: 7}),
    ],
    ids=["partitions", "ends"],
)


def offsets_of(error: int, times: int) -> Offsets:
    made = Offsets({"bootstrap.servers": "127.0.0.1:1"}, clock=PlayedClock())
    made._admin = Broker(error, times)
    return made


@QUESTIONS
@pytest.mark.parametrize(
    "error", [KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError.LEADER_NOT_AVAILABLE]
)
def test_a_broker_that_does_not_answer_is_asked_again(
    question: Callable[[Offsets], Any], answer: object, error: int
) -> None:
    assert question(offsets_of(error, 3)) == answer


@QUESTIONS
def test_another_error_is_raised_at_once(question: Callable[[Offsets], Any], answer: object) -> None:
    del answer
    with pytest.raises(ClusterError, match="of t could not be read"):
        question(offsets_of(KafkaError.TOPIC_AUTHORIZATION_FAILED, 1))


@QUESTIONS
def test_a_broker_that_stays_away_is_named(question: Callable[[Offsets], Any], answer: object) -> None:
    del answer
    with pytest.raises(ClusterError, match="of t could not be read") as caught:
        question(offsets_of(KafkaError._TRANSPORT, 1_000_000))
    assert "broker is alive" in caught.value.fix

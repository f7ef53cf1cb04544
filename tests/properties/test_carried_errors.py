"""The law of errors that a worker reports to the driver: every class arrives as it was raised, and alone."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import threading
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st
from laws import law

import eomirror
from eomirror.errors import ConfigError, Fault, MirrorError
from eomirror.lane.spec import Ending, LaneReport
from eomirror.plane.client.rejected_record import TargetRefusedError
from eomirror.plane.protocol import RangeRefusedError, RefusedRecord, Rejection, RejectionReason
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable

_SECRET = "hunter2"  # noqa: S105  that is the test


class _CauseError(Exception):
    """What stays in the worker: it shows a password, and holds what cannot be pickled."""

    def __init__(self) -> None:
        super().__init__(f"sasl.password={_SECRET}")
        self.lock = threading.Lock()


def _subclasses(kind: type[MirrorError]) -> set[type[MirrorError]]:
    return {kind}.union(*map(_subclasses, kind.__subclasses__()))


def _kinds() -> list[type[MirrorError]]:
    """Every class of error of the package."""
    for module in pkgutil.walk_packages(eomirror.__path__, "eomirror."):
        if module.name != "eomirror.__main__":
            importlib.import_module(module.name)
    found = [kind for kind in _subclasses(MirrorError) if kind.__module__.startswith("eomirror.")]
    return sorted(found, key=lambda kind: kind.__qualname__)


def _range_refused(text: str, topic: str) -> MirrorError:
    record = RefusedRecord(offset=3, timestamp=-1, keyless=True, batch_bytes=9)
    source = SourcePartition(topic, 0)
    return RangeRefusedError(
        Rejection(
            source=source,
            target_topic=topic,
            reason=RejectionReason.SIZE,
            words=text,
            begin=3,
            end=4,
            record=record,
        )
    )


# of classes whose arguments are not those of MirrorError
_MAKERS: dict[type[MirrorError], Callable[[str, str, str], MirrorError]] = {
    ConfigError: lambda text, fix, topic: ConfigError([Fault("links[0]", text, fix, 7)], source=topic),
    RangeRefusedError: lambda text, _, topic: _range_refused(text, topic),
    TargetRefusedError: lambda text, _, topic: TargetRefusedError(
        text, KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), topic, 1
    ),
}


def _raised(kind: type[MirrorError], text: str, fix: str, topic: str) -> MirrorError:
    """An error as the lane has it: raised because of another one, with a note."""
    make: Any = _MAKERS.get(kind, lambda text, fix, topic: kind(text, fix=fix, topic=topic))
    try:
        try:
            raise _CauseError  # noqa: TRY301  the cause is the point
        except _CauseError as cause:
            raise make(text, fix, topic) from cause
    except MirrorError as error:
        error.add_note("also: another lane")
        return error


@pytest.mark.parametrize("kind", _kinds())
@law(10)
@given(text=st.text(), fix=st.text(), topic=st.text())
def test_an_error_arrives_as_it_was_raised(kind: type[MirrorError], text: str, fix: str, topic: str) -> None:
    """Class, texts, fields and notes; neither its cause nor its traceback, nor what they show."""
    error = _raised(kind, text, fix, topic)
    report = LaneReport(lane=0, epoch=1, attempt=1, ending=Ending.FAILED, error=error)

    packed = pickle.dumps(report)
    arrived = pickle.loads(packed).error  # noqa: S301  our own bytes

    assert type(arrived) is kind
    assert (str(arrived), arrived.args, arrived.exit_code) == (str(error), error.args, error.exit_code)
    assert vars(arrived) == vars(error)
    assert (arrived.__cause__, arrived.__context__, arrived.__traceback__) == (None, None, None)
    assert _SECRET.encode() not in packed

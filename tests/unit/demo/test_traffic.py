"""The demo's traffic: every awkward shape, repeatable, with stamps that hold."""

from __future__ import annotations

from eomirror.demo.traffic import STAMP_HEADER, Record, Stamp, TrafficPlan


def records_of(plan: TrafficPlan, transactions: int) -> tuple[list[Record], object]:
    """Committed records, and the ledger."""
    ledger = plan.new_ledger()
    committed: list[Record] = []
    for number in range(transactions):
        transaction = plan.transaction(number, ledger, sent_us=number, wall_ms=1_700_000_000_000)
        ledger.enter(transaction)
        if transaction.commit:
            committed += transaction.records
    return committed, ledger


def test_the_same_seed_writes_the_same_records() -> None:
    """A demo can be repeated."""
    assert records_of(TrafficPlan(1, 6), 20) == records_of(TrafficPlan(1, 6), 20)
    assert records_of(TrafficPlan(1, 6), 20) != records_of(TrafficPlan(2, 6), 20)


def test_one_transaction_in_ten_is_aborted() -> None:
    """The ledger knows them apart."""
    _, ledger = records_of(TrafficPlan(3, 6), 100)
    assert (ledger.transactions, ledger.aborted_transactions) == (90, 10)  # type: ignore[attr-defined]
    assert (ledger.records, ledger.aborted_records) == (4500, 500)  # type: ignore[attr-defined]


def test_sequences_have_no_gaps_within_a_partition() -> None:
    """Aborted records take no number."""
    committed, _ = records_of(TrafficPlan(4, 6), 50)
    for partition in range(6):
        stamps = [Stamp.of(record.headers) for record in committed if record.partition == partition]
        assert [stamp.sequence for stamp in stamps if stamp] == list(range(len(stamps)))


def test_stamps_fit_their_records_and_no_others() -> None:
    """A reader can tell on its own that a record is damaged or misplaced."""
    for record in records_of(TrafficPlan(5, 3), 5)[0]:
        stamp = Stamp.of(record.headers)
        assert stamp is not None
        assert stamp.fits(record.partition, record.key, record.value)
        assert not stamp.fits(record.partition + 1, record.key, record.value)
        assert not stamp.fits(record.partition, record.key, (record.value or b"") + b"x")
    assert Stamp.of([(STAMP_HEADER, b"short"), (STAMP_HEADER, None)]) is None


def test_every_awkward_shape_is_there() -> None:
    """Null and empty keys and values, repeated and null-valued headers, timestamps set by hand."""
    committed, _ = records_of(TrafficPlan(6, 6), 50)
    names = [[name for name, _ in record.headers] for record in committed]
    assert {record.key for record in committed} >= {None, b""}
    assert {record.value for record in committed} >= {None, b""}
    assert any(len(set(each)) < len(each) for each in names)
    assert any(value is None for record in committed for _, value in record.headers)
    assert any(value == b"" for record in committed for _, value in record.headers)
    assert len({record.timestamp for record in committed}) > 100

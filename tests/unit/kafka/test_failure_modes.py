"""
The 26 failure modes of a Kafka client (reference/faults-and-security.md, section 2), by their numbers.

What the client plane's classifier can say is asked here; the native plane's is Rust, with tests of its own.  What only
brokers can show is proven by the tests that the tables name: those of the first table run on the client plane, or on
both; the second one has what the native plane needs besides.  A name that leads nowhere fails.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from confluent_kafka import KafkaError

from eomirror.config import load_config
from eomirror.config.clients import CONSUMER_FORCED, PRODUCER_FORCED
from eomirror.errors import ConfigError
from eomirror.kafka.errors import Action, classify_delivery, classify_fetch, classify_transaction

TESTS = Path(__file__).resolve().parents[2]

_WITNESS = "faults/test_witness.py::"
_MIRROR = "integration/test_mirror.py::"
_HERE = "unit/kafka/test_failure_modes.py::"

#: number -> what happens, and the tests that show what is done about it
MODES: dict[int, tuple[str, tuple[str, ...]]] = {
    1: (
        "the answer to EndTxn is lost or late, and the library says nothing",
        (
            _WITNESS + "test_a_straggling_commit_does_not_touch_a_successor",
            _WITNESS + "test_a_straggling_abort_does_not_touch_a_successor",
            _WITNESS + "test_a_lost_answer_to_a_commit_makes_it_suspect",
            "unit/lane/test_machine.py::test_a_suspect_commit_replaces_the_producer",
        ),
    ),
    2: (
        "the outcome of a commit is unknown",
        (
            _WITNESS + "test_a_commit_that_gets_no_answers_ends_with_its_outcome_unknown",
            "unit/lane/test_runner.py::test_a_commit_that_did_not_succeed_is_never_counted",
            _HERE + "test_row_2_nothing_is_guessed",
        ),
    ),
    3: (
        "the transaction outlived its timeout",
        (
            _HERE + "test_rows_3_and_4_fencing_is_a_question_to_control",
            "unit/link/test_ownership.py::test_after_fencing",
            "spark/test_paths.py::test_a_fenced_lane_of_the_own_run_is_rebuilt",
        ),
    ),
    4: (
        "a real zombie",
        (
            _HERE + "test_rows_3_and_4_fencing_is_a_question_to_control",
            "unit/lane/test_runner.py::test_a_successor_that_was_fenced_in_between_ends_before_any_data",
            "spark/test_paths.py::test_another_mirror_ends_the_link",
        ),
    ),
    5: (
        "the coordinator loads, or writes markers",
        (_HERE + "test_row_5_a_busy_coordinator_is_asked_again",),
    ),
    6: ("sequence numbers or the producer id are lost", (_HERE + "test_row_6_lost_sequences_rebuild",)),
    7: ("INVALID_TXN_STATE", (_HERE + "test_row_7_an_invalid_state_rebuilds",)),
    8: (
        "committed on the broker, failed locally",
        (
            _HERE + "test_row_2_nothing_is_guessed",
            "sim/test_model.py::test_the_model_finds_a_lane_that_breaks_a_rule",
        ),
    ),
    9: (
        "send_offsets_to_transaction hangs with a dead group coordinator",
        (_HERE + "test_row_9_group_offsets_are_no_part_of_a_transaction",),
    ),
    10: (
        "a call hangs after a fatal error",
        (
            "faults/test_network.py::test_a_half_open_cluster_is_left_and_found_again",
            "spark/test_paths.py::test_a_lane_that_does_not_listen_is_cut_off_in_time",
        ),
    ),
    11: (
        "a record beyond the client's own limit, which the library would commit without",
        ("faults/test_poison.py::test_a_record_beyond_the_client_s_own_limit",),
    ),
    12: (
        "a record beyond the topic's limit",
        (
            _HERE + "test_rows_11_to_13_a_refused_record_is_no_reason_to_retry",
            "faults/test_poison.py::test_a_record_that_is_too_large_stops_its_topic_by_name",
            "faults/test_poison.py::test_records_that_are_too_large_become_dead_letters",
            "faults/test_poison.py::test_the_limit_is_raised_as_far_as_it_may_be",
            "unit/lane/test_poison_records.py::test_every_refused_record_is_found_and_no_other",
        ),
    ),
    13: (
        "a timestamp that the target does not take",
        (
            "faults/test_poison.py::test_a_timestamp_that_the_target_does_not_take",
            "unit/topics/test_diff.py::test_append_times_of_the_source_become_create_times",
        ),
    ),
    14: (
        "the target topic is deleted in the middle of a transaction",
        (
            _HERE + "test_row_14_a_topic_that_went_away_is_for_recovery",
            "faults/test_replaced_topics.py::test_replaced_targets_are_noticed_while_it_runs",
        ),
    ),
    15: (
        "the target topic is recreated, truncated or restored",
        (
            "faults/test_replaced_topics.py::test_replaced_targets_are_noticed_at_the_next_start",
            "faults/test_replaced_topics.py::test_a_target_that_is_restored_from_an_older_log",
            "unit/recovery/test_resume.py::test_a_changed_cluster_stops_the_topic",
        ),
    ),
    16: (
        "the source is recreated, truncated, or overtaken by retention",
        (
            _HERE + "test_row_16_the_source_s_past_is_never_skipped",
            "faults/test_replaced_topics.py::test_recreated_sources_are_noticed_at_the_next_start",
            "faults/test_replaced_topics.py::test_recreated_sources_are_noticed_while_it_runs",
            "faults/test_replaced_topics.py::test_a_source_that_is_restored_from_an_older_log",
            "faults/test_gaps.py::test_a_gap_while_the_mirror_does_not_run",
            "faults/test_gaps.py::test_a_gap_under_a_running_mirror",
        ),
    ),
    17: (
        "offsets jump over compacted records, markers and aborted ranges",
        (
            "faults/test_gaps.py::test_holes_that_lost_nothing_raise_no_alarm",
            _MIRROR + "test_a_tail_of_markers_and_aborted_data_is_caught_up",
        ),
    ),
    18: (
        "an open transaction on the source holds readers back",
        (
            "faults/test_gaps.py::test_a_gap_under_a_running_mirror",
            "integration/test_admin.py::test_the_last_stable_offset_is_not_the_high_watermark",
        ),
    ),
    19: (
        "the source is read uncommitted",
        (
            _HERE + "test_row_19_reading_uncommitted_is_refused",
            _MIRROR + "test_every_shape_of_record_arrives_unchanged",
        ),
    ),
    20: (
        "a partition is added on the source",
        (
            _MIRROR + "test_new_topics_and_partitions_are_taken_up_under_way",
            "unit/lane/test_runner.py::test_added_partitions_are_taken_up_without_leaving",
        ),
    ),
    21: (
        "the target has fewer or more partitions",
        (
            "unit/topics/test_diff.py::test_a_copy_grows_with_its_source",
            "integration/test_discovery.py::test_a_copy_with_more_partitions_is_used_as_it_is",
            _HERE + "test_row_14_a_topic_that_went_away_is_for_recovery",
        ),
    ),
    22: (
        "workers are rescaled, and old ids live on",
        (
            "unit/link/test_ownership.py::test_a_new_generation_fences_every_lane_that_ever_was",
            "unit/lane/test_runner.py::test_a_newer_generation_makes_the_attempt_leave",
        ),
    ),
    23: (
        "the broker verifies what is added to a transaction (KIP-890)",
        (_HERE + "test_row_23_a_broker_that_asks_for_an_abort_gets_it",),
    ),
    24: (
        "nulls, empties, repeated headers and all codecs stay what they are",
        (
            _MIRROR + "test_every_shape_of_record_arrives_unchanged",
            "unit/plane/test_planner.py::test_a_record_is_handed_over_unchanged",
            "integration/test_cluster.py::test_every_compression_codec_is_on_the_class_path",
        ),
    ),
    25: (
        "clocks differ, and the target may stamp append times",
        (
            "unit/topics/test_diff.py::test_loss_relevant_settings_converge",
            "unit/test_layers.py::test_a_banned_name_is_used_by_its_owner_only",
        ),
    ),
    26: ("a byte is flipped on the way", (_HERE + "test_row_26_checksums_are_checked",)),
}


_NATIVE = "interop/test_native_transactions.py::"
_FAILURE = "../rust/plane/src/lane/failure.rs::"
_COORDINATOR = "../rust/kafka/src/transaction_state/producer_state/tests.rs::"
_SEQUENCES = "../rust/kafka/src/transaction_state/in_flight/tests.rs::"
_RELAY = "../rust/core/tests/relay_cases.rs::"
_FETCH = "../rust/kafka/src/fetch/state/tests/troubles.rs::"
_KINDS = "unit/plane/test_native_errors.py::test_each_kind_becomes_the_error_that_the_lane_acts_upon"
_STRAGGLERS = "faults/test_stragglers.py::"
_POISON = "faults/test_poison.py::"
_REPLACED = "faults/test_replaced_topics.py::"
_SAME_COPY = "interop/test_native_plane.py::test_both_planes_make_the_same_copy"

#: number -> tests of the native plane
NATIVE: dict[int, tuple[str, ...]] = {
    1: (
        _COORDINATOR + "a_lost_end_is_sent_again_unchanged_until_it_is_answered",
        _NATIVE + "test_a_late_end_of_an_old_transaction_ends_no_later_one",
        _NATIVE + "test_answers_that_are_lost_with_their_connection_change_nothing",
        _STRAGGLERS + "test_a_straggling_abort_of_the_lane_ends_nothing",
    ),
    2: (_NATIVE + "test_an_outcome_that_is_not_known_in_time_is_known_later", _KINDS),
    3: (
        _COORDINATOR + "a_timed_out_transaction_is_not_committed",
        _NATIVE + "test_a_transaction_that_the_coordinator_gave_up_is_not_committed",
    ),
    4: (
        _COORDINATOR + "a_fenced_producer_asks_nothing_more",
        _FAILURE + "a_leaders_refusal_is_read_by_its_code",
        _NATIVE + "test_a_second_producer_fences_the_first",
    ),
    5: (
        _COORDINATOR + "a_busy_coordinator_is_asked_for_an_identity_again",
        _COORDINATOR + "a_coordinator_that_moved_is_looked_for",
    ),
    6: (
        _SEQUENCES + "out_of_order_alone_is_final",
        _FAILURE + "a_leaders_refusal_is_read_by_its_code",
        _FAILURE + "a_coordinators_refusal_is_read_by_its_code",
    ),
    7: (_FAILURE + "a_coordinators_refusal_is_read_by_its_code",),
    8: (
        "../rust/kafka/tests/transaction_model.rs::committed_readers_see_what_the_writer_was_told",
        _STRAGGLERS + "test_commits_whose_answers_are_lost_count_once",
    ),
    9: (_HERE + "test_row_9_group_offsets_are_no_part_of_a_transaction",),
    10: (
        "../rust/kafka/tests/scripted.rs::an_unresponsive_broker_is_asked_again_for_the_same",
        "faults/test_network.py::test_a_half_open_cluster_is_left_and_found_again",
    ),
    11: (
        _RELAY + "a_record_that_is_too_large_is_named_with_what_it_needs",
        _FAILURE + "unrelayable_bytes_are_damaged_refused_or_stop_their_topic",
    ),
    12: (
        _NATIVE + "test_a_batch_that_the_topic_refuses_is_named",
        _FAILURE + "a_refused_batch_is_named_with_its_source_and_offsets",
        "unit/plane/test_select.py::test_a_refused_record_is_sought_by_the_client_plane",
        _POISON + "test_a_record_that_is_too_large_stops_its_topic_by_name",
    ),
    13: (
        "unit/plane/test_native_errors.py::test_a_refused_batch_is_named_by_its_source_offsets",
        _POISON + "test_a_timestamp_that_the_target_does_not_take",
    ),
    14: (_REPLACED + "test_replaced_targets_are_noticed_while_it_runs",),
    15: (
        _REPLACED + "test_replaced_targets_are_noticed_at_the_next_start",
        _REPLACED + "test_a_target_that_is_restored_from_an_older_log",
    ),
    16: (
        _FETCH + "a_truncated_log_stops_the_partition_with_the_place",
        _FETCH + "a_topic_that_was_created_anew_stops_its_partitions",
        _FAILURE + "a_gap_is_told_from_the_committed_position_to_the_log",
        _REPLACED + "test_a_source_that_is_restored_from_an_older_log",
        "faults/test_gaps.py::test_a_gap_under_a_running_mirror",
    ),
    17: (
        _SAME_COPY + "_of_a_compacted_log",
        "faults/test_gaps.py::test_holes_that_lost_nothing_raise_no_alarm",
    ),
    18: ("faults/test_source_shapes.py::test_an_open_transaction_on_the_source_holds_its_partition_only",),
    19: (_NATIVE + "test_committed_batches_are_seen_and_aborted_ones_are_not",),
    20: ("faults/test_source_shapes.py::test_partitions_that_are_added_under_load",),
    21: (_FETCH + "a_missing_partition_is_waited_for_and_then_gone",),
    22: ("faults/test_neighbours.py::test_lanes_of_every_older_layout_are_fenced",),
    23: (
        _COORDINATOR + "an_abortable_commit_leaves_only_the_abort",
        _FAILURE + "a_leaders_refusal_is_read_by_its_code",
        _STRAGGLERS + "test_a_straggling_abort_of_the_lane_ends_nothing",
    ),
    24: (_SAME_COPY, _MIRROR + "test_every_shape_of_record_arrives_unchanged"),
    25: (
        _RELAY + "a_target_with_append_times_gets_such_batches_unchanged",
        "faults/test_clocks.py::test_a_clock_that_is_a_day_wrong_changes_nothing",
    ),
    26: (
        "../rust/core/tests/batch_malformed.rs::every_flipped_bit_is_noticed_or_lies_where_no_checksum_looks",
        _FAILURE + "unrelayable_bytes_are_damaged_refused_or_stop_their_topic",
    ),
}

_RUST_TEST = re.compile(r"#\[test\]\s+(?:#\[[^\]]*\]\s+)*fn (\w+)\(")


@cache
def names_in(path: str) -> frozenset[str]:
    """Names of the test functions of a file."""
    if path.endswith(".rs"):
        return frozenset(_RUST_TEST.findall((TESTS / path).read_text("utf-8")))
    tree = ast.parse((TESTS / path).read_text("utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("number", range(1, 27))
def test_every_failure_mode_has_tests_that_exist(number: int) -> None:
    """26 rows for either plane, none without a test, none with the name of one that was renamed or removed."""
    what, tests = MODES[number]
    assert what
    assert tests
    assert NATIVE[number]
    for name in (*tests, *NATIVE[number]):
        path, _, function = name.partition("::")
        assert function in names_in(path), name


def test_no_row_is_beside_the_table() -> None:
    """The numbers are the reference's."""
    assert sorted(MODES) == sorted(NATIVE) == list(range(1, 27))


def error(name: str, **flags: bool) -> KafkaError:
    return KafkaError(getattr(KafkaError, name), None, **flags)


@pytest.mark.parametrize("name", ["UNKNOWN", "_INCONSISTENT", "_FATAL", "_STATE"])
def test_row_2_nothing_is_guessed(name: str) -> None:
    """Rows 2 and 8: no flag set, or a fatal one, means a new producer that reads what is true."""
    assert classify_transaction(error(name)).action is Action.REBUILD
    assert classify_transaction(error(name, fatal=True)).action is Action.REBUILD


@pytest.mark.parametrize("name", ["_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"])
def test_rows_3_and_4_fencing_is_a_question_to_control(name: str) -> None:
    """An expired transaction and a zombie look alike; who owns the link is in control (rule 10)."""
    assert classify_transaction(error(name, fatal=True)).action is Action.FENCED
    assert classify_delivery(error(name)).action is Action.FENCED


@pytest.mark.parametrize(
    "name", ["COORDINATOR_LOAD_IN_PROGRESS", "CONCURRENT_TRANSACTIONS", "NOT_COORDINATOR"]
)
def test_row_5_a_busy_coordinator_is_asked_again(name: str) -> None:
    """It passes on its own."""
    assert classify_transaction(error(name, retriable=True)).action is Action.RETRY


@pytest.mark.parametrize(
    "name", ["OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_ID_MAPPING"]
)
def test_row_6_lost_sequences_rebuild(name: str) -> None:
    """Abort, and a new producer, whatever KIP-360 would allow."""
    assert classify_transaction(error(name, txn_requires_abort=True)).action is Action.REBUILD
    assert classify_delivery(error(name)).action is Action.REBUILD


def test_row_7_an_invalid_state_rebuilds() -> None:
    """The client and the coordinator disagree: a new producer."""
    assert classify_transaction(error("INVALID_TXN_STATE", fatal=True)).action is Action.REBUILD


def test_row_9_group_offsets_are_no_part_of_a_transaction() -> None:
    """Positions are records of ours: no module calls what hangs."""
    package = TESTS.parent / "python" / "eomirror"
    assert [path for path in package.rglob("*.py") if "send_offsets_to_transaction" in path.read_text()] == []


@pytest.mark.parametrize(
    "name", ["MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_TIMESTAMP", "INVALID_RECORD"]
)
def test_rows_11_to_13_a_refused_record_is_no_reason_to_retry(name: str) -> None:
    """The same record would be refused for ever: it is looked for instead."""
    assert classify_delivery(error(name)).action is Action.REFUSED_RECORD


def test_a_codec_that_the_target_does_not_know_is_named_and_not_retried() -> None:
    """Every record would be refused: it is a setting of ours, for a person to change."""
    assert classify_delivery(error("UNSUPPORTED_COMPRESSION_TYPE")).action is Action.CONFIGURATION


@pytest.mark.parametrize("name", ["UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_ID"])
def test_row_14_a_topic_that_went_away_is_for_recovery(name: str) -> None:
    """Rows 14 and 21: ids and partition counts are compared before anything is sent again."""
    assert classify_delivery(error(name)).action is Action.TOPIC_GONE
    assert classify_transaction(error(name)).action is Action.REBUILD


def test_row_16_the_source_s_past_is_never_skipped() -> None:
    """Out of range and a diverging log are facts for recovery; nothing is reset on its own."""
    for name in ("OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"):
        assert classify_fetch(error(name)).action is Action.SOURCE_GAP
    assert classify_fetch(error("_LOG_TRUNCATION")).action is Action.SOURCE_TRUNCATED
    said = "Partition log truncation detected at offset 408 (leader epoch 2): broker end offset is 204"
    diverged = KafkaError(KafkaError._AUTO_OFFSET_RESET, said)
    assert classify_fetch(diverged).action is Action.SOURCE_TRUNCATED
    assert CONSUMER_FORCED["auto.offset.reset"] == "error"


def test_row_19_reading_uncommitted_is_refused() -> None:
    """EO-12: it cannot be configured away."""
    assert CONSUMER_FORCED["isolation.level"] == "read_committed"
    clusters = {
        "east": {"bootstrap.servers": "a:1", "consumer": {"isolation.level": "read_uncommitted"}},
        "west": {"bootstrap.servers": "b:1"},
    }
    with pytest.raises(ConfigError, match=r"isolation\.level"):
        load_config({"clusters": clusters, "links": [{"source": "east", "target": "west", "topics": ["a"]}]})


def test_row_23_a_broker_that_asks_for_an_abort_gets_it() -> None:
    """TRANSACTION_ABORTABLE is neither repeated nor ignored; acks and idempotence are ours."""
    assert classify_transaction(error("TRANSACTION_ABORTABLE")).action is Action.REBUILD
    assert PRODUCER_FORCED["enable.idempotence"]


def test_row_26_checksums_are_checked() -> None:
    """Librdkafka does not on its own; a broken batch is fetched again."""
    assert CONSUMER_FORCED["check.crcs"]
    assert classify_fetch(error("_BAD_MSG")).action is Action.DAMAGED

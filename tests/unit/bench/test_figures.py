"""The arithmetic of the bench: windows, percentiles, stalls, ratios, reports."""

from __future__ import annotations

import json
from dataclasses import replace

from bench.latency import Stalls, percentile, stalls_of, summarize
from bench.measure import Memory, Progress, kind_of, parse_pss, steady_window, whole_window
from bench.report import Comparison, keep, markdown, table, without_results
from bench.stamped import burst_of, next_in_partition
from bench.throughput import Figures

OURS = Figures(
    peer="eoclient",
    title="eomirror, client plane",
    seconds=15.0,
    complete=False,
    verified=3_000_000,
    records=1_500_000,
    records_per_second=100_000.0,
    megabytes_per_second=10.0,
    cpu_cores=0.5,
    cpu_microseconds_per_record=5.0,
    memory={"total": 500, "driver": 100, "jvm": 200, "workers": 200, "worker": 120},
)
THEIRS = replace(
    OURS,
    peer="mm2eos",
    title="MM2 exactly-once",
    records_per_second=50_000.0,
    cpu_microseconds_per_record=10.0,
)


def looks(*totals: int) -> list[Progress]:
    """One look a second, at one partition."""
    return [Progress(float(second), {0: total}) for second, total in enumerate(totals)]


def test_the_steady_state_begins_after_the_warm_up_and_lasts_as_long_as_asked() -> None:
    """The warm-up counts from the first growth; the window is not longer than asked."""
    window = steady_window(looks(0, 0, 10, 20, 30, 40, 50, 60), warm_up=2, seconds=2)
    assert window is not None
    assert (window.begin.at, window.end.at, window.seconds) == (4.0, 6.0, 2.0)


def test_the_steady_state_ends_before_the_copy_is_complete() -> None:
    """A look at a complete copy would make waiting look like work."""
    window = steady_window(looks(0, 10, 20, 30, 40, 40, 40), warm_up=1, seconds=15, full=40)
    assert window is not None
    assert (window.begin.at, window.end.at) == (2.0, 3.0)


def test_a_copy_that_never_moved_or_ended_in_the_warm_up_has_no_steady_state() -> None:
    """No figure comes from nothing."""
    assert steady_window(looks(0, 0, 0), warm_up=0, seconds=1) is None
    assert steady_window(looks(0, 10, 10, 10), warm_up=1, seconds=1, full=10) is None


def test_the_whole_copy_is_from_the_last_empty_look_to_the_first_complete_one() -> None:
    """Waiting before and after it is no work."""
    window = whole_window(looks(0, 0, 10, 20, 30, 30))
    assert window is not None
    assert (window.begin.at, window.end.at) == (1.0, 4.0)
    assert whole_window(looks(0, 0)) is None


def test_percentiles_are_values_that_were_seen() -> None:
    """Nearest rank: no interpolation invents a latency."""
    hundred = [float(number) for number in range(1, 101)]
    assert [percentile(hundred, share) for share in (0.5, 0.99, 0.999)] == [50.0, 99.0, 100.0]
    assert percentile([7.0], 0.5) == 7.0
    assert percentile([], 0.5) == 0.0


def test_latencies_are_those_of_records_sent_within_the_time() -> None:
    """A record sent before the warm-up ended does not count, however late it arrived."""
    second = 1_000_000_000
    pairs = [
        *(1 * second, 9 * second),
        *(2 * second, 2 * second + 5_000_000),
        *(3 * second, 3 * second + 7_000_000),
        *(4 * second, 4 * second + 1),
    ]
    found = summarize("direct", "direct", pairs, begin=2.0, end=4.0)
    assert (found.records, found.p50, found.maximum) == (2, 5.0, 7.0)


def test_stalls_are_gaps_between_the_last_commit_of_an_epoch_and_the_first_of_the_next() -> None:
    """Lanes are told apart, and gaps within an epoch are kept apart from those at changes."""
    commits = [(0, 1, 100), (1, 1, 105), (0, 1, 130), (0, 2, 430), (1, 2, 605), (0, 2, 440)]
    assert stalls_of(commits) == Stalls(changes=2, p50=300.0, maximum=500.0, longest_elsewhere=30.0)


def test_processes_are_told_apart_by_what_they_run() -> None:
    """A JVM is one wherever it stands; the root is the driver, everything else a worker."""
    assert kind_of("java", is_root=True) == "jvm"
    assert kind_of("python", is_root=True) == "driver"
    assert kind_of("python", is_root=False) == "workers"


def test_pss_is_read_in_bytes() -> None:
    """The kernel writes kB and means KiB; an empty file is a process that has ended."""
    assert parse_pss("Rss:  2048 kB\nPss:   1024 kB\nPss_Anon: 9 kB\n") == 1024 * 1024
    assert parse_pss("") == 0


def test_peaks_are_taken_of_each_kind_for_itself() -> None:
    """The peak of the whole is that of one moment, not the sum of peaks."""
    assert Memory(10, 0, 6, 4).peak(Memory(9, 0, 1, 8)) == Memory(10, 0, 6, 8)


def test_ratios_are_ours_by_theirs() -> None:
    """Throughput above 1 and CPU below 1 are good."""
    comparison = Comparison(workload="100b", title="100 B", figures=[OURS, THEIRS])
    assert comparison.ratios == {"mm2eos": {"throughput": 2.0, "cpu_per_record": 0.5, "memory": 1.0}}
    assert "throughput 2.00x, CPU per record 0.5x, memory 1.00x" in table(comparison)


def test_what_a_mirror_makes_of_the_brokers_stands_beside_it() -> None:
    """The source's and the target's, in that order; nothing where the bench did not look."""
    ours = replace(OURS, brokers_microseconds_per_record={"source": 1.0, "target": 2.5})
    told = table(Comparison(workload="100b", title="100 B", figures=[ours, THEIRS]))
    assert [line.split().count("+") for line in told.splitlines()[2:4]] == [1, 0]
    assert "1.00 + 2.50" in told


def test_a_small_share_of_the_cpu_is_told_as_a_part_too() -> None:
    """0.02 could be a fiftieth or a sixtieth."""
    ours = replace(OURS, cpu_microseconds_per_record=0.12)
    theirs = replace(THEIRS, cpu_microseconds_per_record=6.84)
    assert "CPU per record 0.0175x (1/57), " in table(
        Comparison(workload="100b", title="100 B", figures=[ours, theirs])
    )


def test_a_wrong_copy_has_no_figure_in_any_form() -> None:
    """Its reason stands where figures would."""
    comparison = Comparison(
        workload="100b",
        title="100 B",
        figures=[OURS],
        failures={"MM2 exactly-once": "1 partitions differ:\n x"},
    )
    assert comparison.ratios == {}
    assert "MM2 exactly-once: NO FIGURE: 1 partitions differ" in table(comparison)


def test_results_are_kept_by_date_and_kind(tmp_path) -> None:  # noqa: ANN001  pytest's own
    """JSON for programs, Markdown for people, same name."""
    comparison = Comparison(workload="100b", title="100 B", figures=[OURS, THEIRS])
    machine = dict.fromkeys(
        [
            "processor",
            "cores",
            "memory_gib",
            "system",
            "python",
            "java",
            "kafka",
            "pyspark",
            "confluent_kafka",
        ],
        "x",
    )
    document = {
        "kind": "throughput",
        "date": "2026-01-02 03:04",
        "command": "python -m bench",
        "machine": machine | {"librdkafka": "x", "commit": "abc"},
        "load_average": 0.1,
        "workloads": [comparison.as_dict()],
    }
    path = keep(tmp_path, document, markdown(document, [comparison]))
    assert path.name == "2026-01-02T0304-throughput.md"
    assert "| eomirror, client plane | 100,000 |" in path.read_text("utf-8")
    assert json.loads(path.with_suffix(".json").read_text("utf-8"))["workloads"][0]["ratios"]


def test_results_name_no_place_of_the_machine() -> None:
    """Neither in the command nor in a reason."""
    line = ["--small", "--results", "somewhere", "-o", "json", "--results=there"]
    assert without_results(line) == ["--small", "-o", "json"]
    failed = Comparison(
        workload="100b", title="100 B", failures={"MM2": "ended with 1:\nlog of this machine"}
    )
    assert failed.as_dict()["failures"] == {"MM2": "ended with 1:"}


def test_a_partition_s_records_follow_each_other_in_bursts() -> None:
    """A reader of one partition can tell the record that comes next, whatever others get."""
    burst = burst_of(600)
    partitions: dict[int, list[int]] = {}
    for count in range(100):
        partitions.setdefault(count // burst % 6, []).append(count)
    assert burst == 3
    for counts in partitions.values():
        assert [next_in_partition(count, burst) for count in counts[:-1]] == counts[1:]
    assert burst_of(1) == 1

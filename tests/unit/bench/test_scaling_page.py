"""The page of a scaling run."""

from __future__ import annotations

from bench.scaling import Point, Scaling, scaling_markdown


def _point(lanes: int, partitions: int, rate: float) -> Point:
    return Point(
        lanes=lanes,
        partitions=partitions,
        records_per_second=rate,
        cpu_microseconds_per_record=1.25,
        worker=110,
        seconds=8.0,
        verified=1_234_567,
        others_cores=0.02,
    )


def test_both_rows_are_plotted_to_one_scale_and_listed() -> None:
    """A bar for each point, the axis a tenth above the highest of both plots, and a row for each point."""
    found = Scaling(
        plane="native",
        by_lanes=[_point(1, 12, 150_000.0), _point(2, 12, 300_000.0)],
        by_partitions=[_point(2, 1, 100_000.0), _point(2, 1000, 250_000.0)],
    )

    page = scaling_markdown(found).splitlines()

    assert '    x-axis ["1", "2"]' in page
    assert "    bar [150, 300]" in page
    assert '    x-axis ["1", "1 000"]' in page
    assert "    bar [100, 250]" in page
    assert page.count("    y-axis 0 --> 330") == 2
    assert page.count("```mermaid") == 2
    assert not [line for line in page if "workers" in line]
    assert page[-1] == "| 2 | 1,000 | 250,000 | 1.25 | 110 | 8.0 | 1,234,567 | 0.02 |"


def test_workers_of_a_cluster_have_a_plot_of_their_own() -> None:
    """A run with ``--workers`` has no other points."""
    found = Scaling(plane="native", by_workers=[_point(1, 12, 100_000.0), _point(2, 12, 180_000.0)])

    page = scaling_markdown(found).splitlines()

    assert page.count("```mermaid") == 1
    assert "    bar [100, 180]" in page
    assert len([line for line in page if line.startswith("| ")]) == 3

"""Results at 80 and 140 columns: no row is wrapped, no number cut, and a pipe gets all of it; no broker."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from eomirror.cli.cluster import _configuration
from eomirror.screen import FittedTable, shortened
from support.judges.terminal import Terminal, eomirror, python

if TYPE_CHECKING:
    from pathlib import Path

WIDTHS = (80, 140)
LONG = "a-topic-with-a-very-long-name.that-was-given-to-it.because.it.was.possible"

#: Results of commands, drawn with what a mirror of long names has.
STATUS = f"""
from eomirror.cli.render import stdout_console
from eomirror.cli.status import _draw
from eomirror.metrics.verdict import Verdict
from eomirror.status.model import LinkStatus, PartitionStatus
def partition(name, n):
    return PartitionStatus(topic=name, partition=n, target_topic=f"east.{{name}}", lane=n, position=123456789,
                           source_lso=1, last_commit=1, lag_records=1234567, lag_seconds=3700.0, rate=1.5,
                           records=123456789)
_draw([(LinkStatus(link="east->west", state="running", partitions=tuple(
    partition(name, n) for name in ("orders", "{LONG}") for n in range(2))), Verdict("ok", "keeps up", "", "no loss"))],
    stdout_console(), partitions=True)
"""
VERIFY = f"""
from types import SimpleNamespace as N
from eomirror.cli.verify import draw_verdicts
def partition(name, n):
    scope = N(source=N(topic=name, partition=n), target=N(topic=f"east.{{name}}"), not_comparable=(0,), lag=7,
              problem="")
    return N(scope=scope, matched=123456789, differences={{}}, word="equal", shown=(), holes=(), changed="")
draw_verdicts([N(link="east->west", word="equal", whole=True, waiting=(), partitions=[
    partition(name, n) for name in ("orders", "{LONG}") for n in range(2)])])
"""
TRANSLATE = f"""
from types import SimpleNamespace as N
from eomirror.cli.offsets import _draw
_draw([N(link="east->west", topic=name, partition=n, offset=123456789, to_topic=f"east.{{name}}", to_partition=n,
         to_offset=None, kind="unknown", reason="not mirrored yet: the link is at 0")
       for name in ("orders", "{LONG}") for n in range(2)])
"""
PLAN = f"""
from types import SimpleNamespace as N
from eomirror.cli.plan import _draw
from eomirror.topics.diff import CreateTopic
from eomirror.topics.entries import EntryPlan
def create(name):
    return CreateTopic(name=name, partitions=3, replication_factor=1,
                       configs={{"cleanup.policy": "delete", "retention.ms": "604800000"}})
names = ("orders", "{LONG}")
link = N(name="east->west", source="east", topics=names, remark="")
_draw(link, N(targets={{name: f"east.{{name}}" for name in names}}, cluster_ids=("x" * 22, "y" * 22),
      state=(create("eomirror.east.west.control"),), readers=(), readers_on_source=(), drifts=(),
      left_out={{}}, awaited={{}}, unmatched=lambda _: (), entries=EntryPlan(),
      changes={{name: (create(f"east.{{name}}"),) for name in names}}), settings=False)
"""
#: Result, words that end a row, numbers that must stand whole, and rows.
RESULTS = {
    "status": (STATUS, "ok", ("123,456,789", "1,234,567"), 4),
    "verify": (VERIFY, "equal", ("123,456,789",), 5),
    "translate": (TRANSLATE, "unknown", ("123456789",), 4),
    "plan": (PLAN, ("delete", "compact"), ("3 partitions",), 3),
}


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", RESULTS)
def test_a_row_of_a_table_is_a_row_of_the_screen(name: str, columns: int) -> None:
    """Names are shortened in their middle, numbers never."""
    program, end, numbers, rows = RESULTS[name]
    with Terminal(python(program), columns) as terminal:
        lines = terminal.wait_until_ended()
    assert terminal.process.returncode == 0, "\n".join(lines)
    drawn = [line for line in lines if line.endswith(end)]
    assert len(drawn) == rows, "\n".join(lines)
    begin = next(number for number, line in enumerate(lines) if line.startswith(" ──"))
    # behind the rule come the rows, and then a blank line
    table = lines[begin + 1 : lines.index("", begin)] if "" in lines[begin:] else lines[begin + 1 :]
    assert len(table) == len([line for line in drawn if line in table]), "\n".join(lines)
    for number in numbers:
        assert all(number in line for line in table), (number, "\n".join(lines))
    assert not any("[bold]" in line or "[/" in line for line in lines)


@pytest.mark.parametrize("name", RESULTS)
def test_a_pipe_gets_whole_names(name: str) -> None:
    """`eomirror status -o table | grep TOPIC`: a pipe has no width."""
    done = subprocess.run(
        [sys.executable, "-c", RESULTS[name][0]], capture_output=True, text=True, timeout=60, check=True
    )
    assert f"east.{LONG}" in done.stdout
    assert "…" not in done.stdout


@pytest.mark.parametrize("columns", WIDTHS)
def test_check_fits(columns: int, tmp_path: Path) -> None:
    """A configuration as `cluster up` writes it is right, and summed up without a wrapped row."""
    path = tmp_path / "mirror.yaml"
    path.write_text(configuration("east", "west"))
    with Terminal(eomirror("check", str(path)), columns) as terminal:
        lines = terminal.wait_until_ended()
    assert terminal.process.returncode == 0, "\n".join(lines)
    assert lines[-1] == "ok: 2 clusters, 1 link, no faults"
    assert sum("east->west" in line and "TOPIC -> east.TOPIC" in line for line in lines) == 1


def configuration(*names: str) -> str:
    """What `cluster up` prints for these."""

    class Record:
        def __init__(self, name: str) -> None:
            self.name = name
            self.bootstrap_servers = "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094"

    return _configuration([Record(name) for name in names])  # type: ignore[misc]


def test_a_tab_in_a_file_is_named(tmp_path: Path) -> None:
    """The screen says which line, and what to do."""
    path = tmp_path / "mirror.yaml"
    path.write_text(configuration("east", "west").replace("\n  west", "\n\twest"))
    with Terminal(eomirror("check", str(path)), 80) as terminal:
        text = "\n".join(terminal.wait_until_ended())
    assert terminal.process.returncode == 78
    assert "(line 3): the line starts with a tab" in text
    assert "fix: indent with spaces" in text


@pytest.mark.parametrize(
    ("text", "width", "expected"),
    [
        ("orders", 6, "orders"),
        ("orders.east", 7, "ord…ast"),
        ("orders.east", 8, "orde…ast"),
        ("漢字漢字漢字", 6, "漢…字"),
        ("orders", 1, "…"),
        ("orders", 0, ""),
    ],
)
def test_a_long_name_loses_its_middle(text: str, width: int, expected: str) -> None:
    """Both ends tell names apart."""
    assert shortened(text, width) == expected


def test_an_id_of_thousands_of_letters_leaves_a_table_of_lines() -> None:
    """Also in a pipe, where other rows would be as wide; a line feed in an id does not break its row."""
    written = io.StringIO()
    console = Console(width=100_000, file=written)
    rows = [{"GROUP": group, "P": 0, "NOTE": "n" * 400} for group in ("g" * 4_000, "line\nfeed")]
    console.print(FittedTable(["GROUP", "P", "NOTE"], rows, right=("P",), words=("NOTE",)))
    shown = [line.rstrip() for line in written.getvalue().splitlines() if line.strip()]

    assert len(shown) == 4
    assert max(map(len, shown)) < 700
    assert "…" in shown[2]
    assert "line\\nfeed" in shown[3]

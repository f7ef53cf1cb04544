"""The ledger of the fault tests, and the report that is made of it; no broker."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.demo.compare import Comparison, Revision
from support.clusters.decider import Decider, Kind
from support.clusters.frames import Api
from support.clusters.rules import Resets
from support.judges.ledger import LEDGER_VARIABLE, Entry, append_entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

pytestmark = [pytest.mark.faults]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("faults_long", ROOT / "scripts" / "faults_long.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # dataclasses look for the module of a class
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    yield module
    monkeypatch.undo()


def entry(**values: Any) -> Entry:
    made = Entry(faults=("F9", "F10"), test="tests/faults/test_x.py::test_y", seed=7)
    made.injected(2)
    made.recovered(1.5)
    made.compared(Comparison(source=100, target=99, missing=1), Revision(seen=99, retracted=1, inserted=2))
    for name, value in values.items():
        setattr(made, name, value)
    return made


def test_what_a_test_found_is_a_line_that_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: ModuleType
) -> None:
    """Each entry on its own; a last line that was cut off does not spoil the others."""
    path = tmp_path / "ledger.jsonl"
    # a long run has one of its own, into which this must not write
    monkeypatch.delenv(LEDGER_VARIABLE, raising=False)
    append_entry(entry())
    assert not path.exists()
    monkeypatch.setenv(LEDGER_VARIABLE, str(path))
    for seed in (7, 8):
        append_entry(entry(outcome="passed", seed=seed))
    with path.open("a") as file:
        file.write('{"at": 1, "faul')

    lines = script.read_lines(path)

    assert [line["seed"] for line in lines] == [7, 8]
    assert {name: lines[0][name] for name in ("faults", "records", "missing", "retracted", "recoveries")} == {
        "faults": ["F9", "F10"],
        "records": 100,
        "missing": 1,
        "retracted": 3,
        "recoveries": [1.5],
    }


def test_the_report_has_a_row_for_each_fault_and_names_what_failed(script: ModuleType) -> None:
    """A test of two faults counts for both, in the table only; a skipped one for none."""
    lines = [
        json.loads(made.line(at=1.0))
        for made in (
            entry(outcome="passed"),
            entry(outcome="failed", seed=8, recoveries=[3.5]),
            entry(outcome="skipped", faults=("F28",), injections=0, records=0, missing=0, retracted=0),
            entry(outcome="xfailed", faults=("F3",), test="t::known"),
        )
    ]

    run = script.run_line("just faults-long --hours 1", "native")
    text = script.report([run, *lines, run], date="2026-01-01")

    rows = [line.split(" | ") for line in text.splitlines() if line.startswith("| F")]
    assert [row[0] for row in rows] == ["| F3", "| F9", "| F10"]
    assert rows[1][2:] == ["2", "1", "4", "200", "2", "0", "0", "0", "0", "6", "2.5", "3.5", "7, 8 |"]
    assert "Plane: native." in text
    assert text.count("`just faults-long --hours 1` at ") == 2, "runs add up"
    assert "4 runs of tests, 1 failed; 6 injections; 300 records compared: 3 missing" in text
    assert "EOMIRROR_SEED=8 just faults-replay 'tests/faults/test_x.py::test_y'" in text
    assert "- `t::known`" in text
    assert all(row[1] for row in rows), "a fault without a title in docs/faults.md"


def test_a_run_that_was_broken_off_goes_on_where_it_was(script: ModuleType) -> None:
    """Order and seeds follow from one seed; each round has every file once, named files in the order given."""
    files = [[Path(name)] for name in "abcde"]
    whole = list(script.schedule(files, seed=7, rounds=3, shuffled=True))

    assert list(script.schedule(files, seed=7, rounds=3, shuffled=True, skip=8)) == whole[8:]
    assert [number for number, _, _ in whole] == list(range(1, 16))
    rounds = [[path for _, path, _ in whole[begin : begin + 5]] for begin in (0, 5, 10)]
    assert [sorted(each) for each in rounds] == [files] * 3
    assert rounds[0] != rounds[1]
    assert len({seed for _, _, seed in whole}) == 15
    assert [path for _, path, _ in script.schedule(files, seed=7, rounds=1, shuffled=False)] == files


def test_resets_break_about_the_share_that_was_asked_for_either_side_of_the_broker() -> None:
    """Drawn from the seed: the same ones each time."""
    frame = (10).to_bytes(4, "big") + int(Api.FETCH).to_bytes(2, "big") + bytes(8)
    found = []
    for _ in range(2):
        decider = Decider(5)
        decider.arm("resets", Resets(share=0.1))
        decider.connect(1, 0.0)
        verdicts = [decider.request(1, frame, 0.0) for _ in range(2_000)]
        found.append([(verdict.kind, verdict.cut) for verdict in verdicts])

    assert found[0] == found[1]
    lost, late = found[0].count((Kind.DROP, True)), found[0].count((Kind.DELIVER, True))
    assert 60 < lost < 140
    assert 60 < late < 140
    assert lost + late + found[0].count((Kind.DELIVER, False)) == 2_000

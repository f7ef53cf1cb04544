"""
Golden bytes of the records of the control topic.

Other releases, and tools of users, read these bytes; a release must read what an earlier one has written.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from eomirror.errors import StateError
from eomirror.records.control import (
    Adopted,
    Claim,
    ControlView,
    Gap,
    Generation,
    HandedOver,
    Pause,
    SourceEnds,
    SourceSeen,
    Stopped,
    decode_control,
)
from eomirror.records.control_record import ControlEntry, RecordError
from eomirror.records.dealt_ranges import DealtRange
from eomirror.records.events import Outage, PastEvent, link_events
from eomirror.records.kept_entries import OwnEntry, TargetComparison
from eomirror.records.promotion import (
    Cut,
    Fence,
    Promotion,
    PromotionHistory,
    Restoration,
    Resumption,
    Reversal,
    encoded,
)
from eomirror.records.recreation import CopyBack, Recreation
from eomirror.records.reports import (
    DrillResult,
    GroupsLeft,
    LaneRestarts,
    RefusedConfiguration,
    Reports,
    SchemasMirrored,
    StandbyProcess,
    TailComparison,
    Verification,
    decode_reports,
)
from eomirror.types import Assignment, SourcePartition

A0, B1, B2 = SourcePartition("a", 0), SourcePartition("b", 1), SourcePartition("b", 2)
WHERE = "control-0@7"


def cut(source: SourcePartition, **changes: Any) -> Cut:
    """A cut at 100."""
    values: dict[str, Any] = {
        "topic": source.topic, "partition": source.partition, "topic_id": "s", "position": 100,
        "target_topic": f"east.{source.topic}", "target_topic_id": "t", "target_end": 90, "timestamp": 7, **changes,
    }  # fmt: skip
    return Cut(**values)


def promotion(**changes: Any) -> Promotion:
    """A failover of three partitions."""
    values: dict[str, Any] = {
        "number": 1, "planned": False, "run": "r", "host": "h", "generation": 4, "source_cluster_id": "S",
        "target_cluster_id": "T", "cuts": (cut(A0, source_end=105), cut(B1, source_end=101), cut(B2, source_end=100)),
        "groups": {"moved": 3, "kept": 1}, "started": 8, "timestamp": 9, "milliseconds": {"take": 12, "cut": 3},
        **changes,
    }  # fmt: skip
    return Promotion(**values)


RESTORATION = Restoration(number=1, orphans="merge", records=5, place="", run="r", timestamp=9)
REVERSAL = Reversal(number=1, link="back", ends={B2: 7, A0: 105, B1: 3}, run="r", timestamp=8)

# record, key, value, sentence in the timeline
GOLDEN: list[tuple[Any, bytes, bytes, str | None]] = [
    (
        Generation(
            generation=7, revision=2, run="r", highest_lane=3,
            assignment=Assignment(2, {B1: 1, A0: 0, B2: 1}, frozenset({SourcePartition("gone", 1)})), timestamp=5,
        ),
        b'{"kind":"generation"}',
        (b'{"v":1,"generation":7,"revision":2,"run":"r","lanes":2,"highest_lane":3,"assignment":[{"'
        b'a":[0]},{"b":[1,2]}],"parked":{"gone":[1]},"timestamp":5}'),
        "generation 7, 2 lanes, run r, revision 2 adds partitions",
    ),
    (
        Generation(generation=1, revision=0, run="r", highest_lane=0, assignment=Assignment(1, {}), timestamp=5),
        b'{"kind":"generation"}',
        (b'{"v":1,"generation":1,"revision":0,"run":"r","lanes":1,"highest_lane":0,"assignment":[{}'
        b'],"parked":{},"timestamp":5}'),
        "generation 1, 1 lanes, run r",
    ),
    (
        Generation(
            generation=9, revision=0, run="r", highest_lane=1, assignment=Assignment(2, {A0: 0}), timestamp=5,
            since=(9, 8),
        ),
        b'{"kind":"generation"}',
        (b'{"v":1,"generation":9,"revision":0,"run":"r","lanes":2,"highest_lane":1,"assignment":[{"a":[0]},{}'
        b'],"parked":{},"timestamp":5,"since":[9,8]}'),
        "generation 9, 2 lanes, run r, after partitions changed lanes",
    ),
    (
        Claim(
            run="r", host="h", pid=1, boot="b", started="2", sequence=3, interval_ms=5000, released=False, timestamp=6,
            command="failover",
        ),
        b'{"kind":"claim"}',
        (b'{"v":1,"run":"r","host":"h","pid":1,"boot":"b","started":"2","sequence":3,"interval_ms":'
        b'5000,"released":false,"timestamp":6,"command":"failover"}'),
        "h/1 run r (eomirror failover) owns the link",
    ),
    (
        Claim(run="r", host="h", pid=1, boot="", started="", sequence=3, interval_ms=5000, released=True, timestamp=6),
        b'{"kind":"claim"}',
        (b'{"v":1,"run":"r","host":"h","pid":1,"boot":"","started":"","sequence":3,"interval_ms":50'
        b'00,"released":true,"timestamp":6,"command":""}'),
        "h/1 run r released the link",
    ),
    (
        Claim(
            run="r", host="h", pid=1, boot="", started="", sequence=3, interval_ms=5000, released=True, timestamp=6,
            alone=True,
        ),
        b'{"kind":"claim"}',
        (b'{"v":1,"run":"r","host":"h","pid":1,"boot":"","started":"","sequence":3,"interval_ms":50'
        b'00,"released":true,"timestamp":6,"command":"","alone":true}'),
        "h/1 run r released the link",
    ),
    (
        Gap(topic="a", partition=0, start=5, end=9, reason="retention", run="r", timestamp=7),
        b'{"kind":"gap","topic":"a","partition":0,"from":5}',
        b'{"v":1,"to":9,"reason":"retention","run":"r","timestamp":7}',
        "a-0: the loss of offsets [5, 9) was accepted",
    ),
    (
        Adopted(
            topic="a", partition=0, offset=5, target_offset=None, replicator="mm2", place="p", committed=4,
            evidence="e", run="r", timestamp=9,
        ),
        b'{"kind":"adoption","topic":"a","partition":0}',
        (b'{"v":1,"offset":5,"target_offset":null,"replicator":"mm2","place":"p","committed":4,"evi'
        b'dence":"e","run":"r","timestamp":9}'),
        "a-0: resumes at 5, where mm2 stopped",
    ),
    (
        HandedOver(replicator="mm2", place="mm2-offsets.east.internal", run="r", timestamp=8),
        b'{"kind":"hand-back"}',
        b'{"v":1,"replicator":"mm2","place":"mm2-offsets.east.internal","run":"r","timestamp":8}',
        "the link was handed back to mm2",
    ),
    (
        Stopped(topic="a", reason='it is "gone"', fix="", exit_code=4, lane=None, run="r", timestamp=9),
        b'{"kind":"stopped","topic":"a"}',
        (b'{"v":1,"reason":"it is \\"gone\\"","fix":"","exit_code":4,"lane":null,"run":"r","timestamp'
        b'":9}'),
        'topic a is stopped: it is "gone"',
    ),
    (
        Stopped(topic="ä", reason="lost", fix="accept the gap", exit_code=4, lane=3, run="r", timestamp=9),
        b'{"kind":"stopped","topic":"\xc3\xa4"}',
        (b'{"v":1,"reason":"lost","fix":"accept the gap","exit_code":4,"lane":3,"run":"r","timestam'
        b'p":9}'),
        "topic ä is stopped: lost",
    ),
    (
        Pause(topics="", host="h", timestamp=1),
        b'{"kind":"pause"}',
        b'{"v":1,"topics":"","host":"h","timestamp":1}',
        "h paused all topics",
    ),
    (
        Pause(topics="a.*", host="h", timestamp=1),
        b'{"kind":"pause"}',
        b'{"v":1,"topics":"a.*","host":"h","timestamp":1}',
        "h paused a.*",
    ),
    (
        SourceEnds(topic="a", ends={1: 10, 0: 3}),
        b'{"kind":"ends","topic":"a"}',
        b'{"v":1,"ends":{"1":10,"0":3}}',
        None,
    ),
    (
        SourceEnds(topic="a", ends={0: 3}, starts={0: 1}),
        b'{"kind":"ends","topic":"a"}',
        b'{"v":1,"ends":{"0":3},"starts":{"0":1}}',
        None,
    ),
    (
        SourceSeen(timestamp=5),
        b'{"kind":"seen"}',
        b'{"v":1,"timestamp":5}',
        None,
    ),
    (
        promotion(),
        b'{"kind":"promotion","number":1}',
        (b'{"v":1,"planned":false,"run":"r","host":"h","generation":4,"source_cluster_id":"S","targ'
        b'et_cluster_id":"T","groups":{"moved":3,"kept":1},"started":8,"timestamp":9,"milliseconds'
        b'":{"take":12,"cut":3},"topics":{"a":{"topic_id":"s","target":"east.a","target_topic_id":'
        b'"t","partitions":{"0":[100,90,7,105]}},"b":{"topic_id":"s","target":"east.b","target_top'
        b'ic_id":"t","partitions":{"1":[100,90,7,101],"2":[100,90,7,100]}}}}'),
        ("h failed over (promotion 1): applications write to the copies of 3 partitions; left behi"
        "nd: 6 source offsets"),
    ),
    (
        promotion(
            planned=True, cuts=(cut(A0), cut(B1, gone=True, source_end=100), cut(B2, proven=False, source_end=130)),
            groups={}, milliseconds={},
        ),
        b'{"kind":"promotion","number":1}',
        (b'{"v":1,"planned":true,"run":"r","host":"h","generation":4,"source_cluster_id":"S","targe'
        b't_cluster_id":"T","groups":{},"started":8,"timestamp":9,"milliseconds":{},"topics":{"a":'
        b'{"topic_id":"s","target":"east.a","target_topic_id":"t","partitions":{"0":[100,90,7,null'
        b']}},"b":{"topic_id":"s","target":"east.b","target_topic_id":"t","partitions":{"1":[100,9'
        b'0,7,100],"2":[100,90,7,130]},"gone":[1],"unproven":[2]}}}'),
        ("h promoted (promotion 1): applications write to the copies of 3 partitions; left behind:"
        " an unknown number of source offsets"),
    ),
    (
        promotion(ends_at=6, uncut=30, at_least=True),
        b'{"kind":"promotion","number":1}',
        (b'{"v":1,"planned":false,"run":"r","host":"h","generation":4,"source_cluster_id":"S","targ'
        b'et_cluster_id":"T","groups":{"moved":3,"kept":1},"started":8,"timestamp":9,"milliseconds'
        b'":{"take":12,"cut":3},"ends_at":6,"uncut":30,"at_least":true,"topics":{"a":{"topic_id":"'
        b's","target":"east.a","target_topic_id":"t","partitions":{"0":[100,90,7,105]}},"b":{"topi'
        b'c_id":"s","target":"east.b","target_topic_id":"t","partitions":{"1":[100,90,7,101],"2":['
        b'100,90,7,100]}}}}'),
        ("h failed over (promotion 1): applications write to the copies of 3 partitions; left behi"
        "nd: at least 36 source offsets"),
    ),
    (
        REVERSAL,
        b'{"kind":"reversal","number":1}',
        b'{"v":1,"link":"back","ends":{"a":{"0":105},"b":{"1":3,"2":7}},"run":"r","timestamp":8}',
        "the link back, back, begins at the cut of promotion 1",
    ),
    (
        Reversal(number=2, link="back", ends={A0: 1}, run="r", timestamp=8, cuts={B1: (80, 70), A0: (5, 4)}),
        b'{"kind":"reversal","number":2}',
        (b'{"v":1,"link":"back","ends":{"a":{"0":1}},"run":"r","timestamp":8,"cuts":{"a":{"0":[5,4]'
        b'},"b":{"1":[80,70]}}}'),
        "the link back, back, begins at the cut of promotion 2",
    ),
    (
        RESTORATION,
        b'{"kind":"restoration","number":1}',
        b'{"v":1,"orphans":"merge","records":5,"place":"","run":"r","timestamp":9}',
        "5 orphans of promotion 1: merged into the copies",
    ),
    (
        Restoration(
            number=1, orphans="export", records=1200, place="/orphans", run="r", timestamp=9,
            lost={B1: ((100, 104), (110, 111))},
            ranges={
                B1: (DealtRange(100, 105, "export", "/orphans", 4, "h", (99, 17, -1)), DealtRange(100, 103, "keep")),
                A0: (DealtRange(1, 2, "merge", records=9),),
            },
        ),
        b'{"kind":"restoration","number":1}',
        (b'{"v":1,"orphans":"export","records":1200,"place":"/orphans","run":"r","timestamp":9,"los'
        b't":{"b":{"1":[[100,104],[110,111]]}},"ranges":{"a":{"0":[[1,2,"merge","",9,"",null]]},"b'
        b'":{"1":[[100,105,"export","/orphans",4,"h",[99,17,-1]],[100,103,"keep","",0,"",null]]}}}'),
        ("1,200 orphans of promotion 1: exported to /orphans; 5 source offsets had been deleted be"
        "fore"),
    ),
    (
        Resumption(number=1, link="back", starts={B1: 130, A0: 2}, run="r", timestamp=10),
        b'{"kind":"resumption","number":1}',
        b'{"v":1,"link":"back","starts":{"a":{"0":2},"b":{"1":130}},"run":"r","timestamp":10}',
        "promotion 1 has ended: the link mirrors again, from the cut of back",
    ),
    (
        Fence(number=2, method="acl", topics=("b", "a"), lifted=False, host="h", timestamp=1, source_cluster_id="S"),
        b'{"kind":"fence","number":2}',
        (b'{"v":1,"method":"acl","topics":["b","a"],"lifted":false,"host":"h","timestamp":1,"liftin'
        b'g":false,"source_cluster_id":"S"}'),
        "h fenced (method acl), before promotion 2: no application may write to b, a",
    ),
    (
        Fence(number=2, method="command", topics=(), lifted=True, host="h", timestamp=1, lifting=True),
        b'{"kind":"fence","number":2}',
        (b'{"v":1,"method":"command","topics":[],"lifted":true,"host":"h","timestamp":1,"lifting":t'
        b'rue,"source_cluster_id":""}'),
        "the fence before promotion 2 is lifted: applications may write to the source again",
    ),
    (
        Recreation(
            number=2, link="back", topics={"b": "id", "a": "id2"}, ends={"b": {"0": 7}}, records=7, place="",
            done=False, run="r", timestamp=1,
        ),
        b'{"kind":"recreation"}',
        (b'{"v":1,"number":2,"link":"back","topics":{"b":"id","a":"id2"},"ends":{"b":{"0":7}},"reco'
        b'rds":7,"place":"","done":false,"run":"r","timestamp":1}'),
        "deleted on the old source after promotion 2, to be copied back whole by back: a, b",
    ),
    (
        CopyBack(link="there", number=2, done=True, until={"b": {"0": 9}}, run="r", timestamp=2, command="reverse"),
        b'{"kind":"copy-back"}',
        (b'{"v":1,"link":"there","number":2,"done":true,"until":{"b":{"0":9}},"run":"r","timestamp"'
        b':2,"command":"reverse"}'),
        "the link has copied topics back whole, after promotion 2 of there",
    ),
    (
        LaneRestarts(
            lane=3, count=2, endings={"rebuild": 1, "worker died": 1}, ending="rebuild", reason="why", run="r",
            timestamp=9,
        ),
        b'{"kind":"restarts","lane":3}',
        (b'{"v":1,"count":2,"endings":{"rebuild":1,"worker died":1},"ending":"rebuild","reason":"wh'
        b'y","run":"r","timestamp":9}'),
        "lane 3 ended early, 2 times in this run: rebuild: why",
    ),
    (
        GroupsLeft(groups={"g": "a consumer is there", "f": "why"}, count=3, run="r", timestamp=9),
        b'{"kind":"groups-left"}',
        b'{"v":1,"groups":{"g":"a consumer is there","f":"why"},"count":3,"run":"r","timestamp":9}',
        None,
    ),
    (
        SchemasMirrored(
            state="conflict", subjects=3, versions=7, pending=0, conflicts=1, kept=2, problem="an id", fix="a context",
            equal_at=8, run="r", timestamp=9,
        ),
        b'{"kind":"schemas"}',
        (
            b'{"v":1,"state":"conflict","subjects":3,"versions":7,"pending":0,"conflicts":1,"kept":2,"problem":"an id",'
            b'"fix":"a context","equal_at":8,"run":"r","timestamp":9}'
        ),
        None,
    ),
    (
        Verification(
            topic="a", outcome="differs", partitions=2, offsets=40, up_to={"1": 10, "0": 30},
            differences={"missing": 1}, problem="one is away", from_offset=5, since=86_400_000, host="h", timestamp=8,
        ),
        b'{"kind":"verification","topic":"a"}',
        (b'{"v":1,"outcome":"differs","partitions":2,"offsets":40,"up_to":{"1":10,"0":30},"differen'
        b'ces":{"missing":1},"problem":"one is away","from_offset":5,"since":86400000,"host":"h","'
        b'timestamp":8}'),
        ("topic a was compared with its source: differs, 40 offsets, from offset 5 on, records sin"
        "ce 1970-01-02T00:00:00+00:00, 1 missing, one is away"),
    ),
    (
        Verification(topic="a", outcome="equal", partitions=1, offsets=4, up_to={}, timestamp=8),
        b'{"kind":"verification","topic":"a"}',
        (b'{"v":1,"outcome":"equal","partitions":1,"offsets":4,"up_to":{},"differences":{},"problem'
        b'":"","from_offset":0,"since":0,"host":"","timestamp":8}'),
        "topic a was compared with its source: equal, 4 offsets",
    ),
    (
        TailComparison(
            outcome="equal", tail=10_000, topics=2, partitions=3, offsets=500, command="cutover", host="h", timestamp=6
        ),
        b'{"kind":"tail"}',
        (b'{"v":1,"outcome":"equal","tail":10000,"topics":2,"partitions":3,"offsets":500,"command":'
        b'"cutover","problem":"","host":"h","timestamp":6}'),
        ("only the last 10,000 offsets of each partition were compared with the source, before a c"
        "utover: equal, 500 offsets"),
    ),
    (
        PastEvent(at=7, of="stopped", topic="t", text="topic t is stopped: gone"),
        b'{"kind":"event","at":7,"of":"stopped","topic":"t"}',
        b'{"v":1,"text":"topic t is stopped: gone"}',
        "topic t is stopped: gone",
    ),
    (
        Outage(at=5_000, cluster="east", until=59_000),
        b'{"kind":"outage","at":5000,"cluster":"east"}',
        b'{"v":1,"until":59000}',
        "cluster east did not answer for 54 s, until 1970-01-01T00:00:59Z",
    ),
    (
        SourceSeen(timestamp=7, rate=385.5),
        b'{"kind":"seen"}',
        b'{"v":1,"timestamp":7,"rate":385.5}',
        None,
    ),
    (
        DrillResult(passed=True, rpo_records=7, rto_ms=1234, host="h", timestamp=7),
        b'{"kind":"drill"}',
        (b'{"v":1,"passed":true,"rpo_records":7,"rto_ms":1234,"host":"h","timestamp":7,"stage":"","'
        b'problem":""}'),
        "a drill passed: 7 records left behind, all merged later; 1234 ms to the promotion",
    ),
    (
        DrillResult(passed=False, rpo_records=0, rto_ms=0, host="h", timestamp=7, stage="restore", problem="no answer"),
        b'{"kind":"drill"}',
        (b'{"v":1,"passed":false,"rpo_records":0,"rto_ms":0,"host":"h","timestamp":7,"stage":"resto'
        b're","problem":"no answer"}'),
        ("a drill failed at the stage 'restore': no answer; repeat it with eomirror drill --report"
        " FILE"),
    ),
    (
        RefusedConfiguration(reason="links[0].lanes: 0 is too small", run="r", timestamp=7),
        b'{"kind":"refused-configuration"}',
        b'{"v":1,"reason":"links[0].lanes: 0 is too small","run":"r","timestamp":7}',
        "the changed configuration is refused: links[0].lanes: 0 is too small",
    ),
    (
        StandbyProcess(run="r", host="h", pid=7, since=6, interval_ms=10_000, timestamp=9),
        b'{"kind":"standby","run":"r"}',
        b'{"v":1,"host":"h","pid":7,"since":6,"interval_ms":10000,"timestamp":9}',
        None,
    ),
    (
        OwnEntry(of="quota", entry='[[["user","a"]],"r"]', values=("1.5", "1.0"), gone_since=4, timestamp=9),
        b'{"kind":"own","of":"quota","entry":"[[[\\"user\\",\\"a\\"]],\\"r\\"]"}',
        b'{"v":1,"values":["1.5","1.0"],"gone_since":4,"timestamp":9}',
        None,
    ),
    (
        TargetComparison(
            standing=2, problems={"acls": "User:m lacks"}, changed={"+": 1}, changed_at=8, command="run", timestamp=9
        ),
        b'{"kind":"alike"}',
        (b'{"v":1,"standing":2,"problems":{"acls":"User:m lacks"},"changed":{"+":1},"changed_at":8,'
        b'"command":"run","timestamp":9}'),
        None,
    ),
]  # fmt: skip

# key of a deleted record, kind and sentence of the event
DELETED: list[tuple[bytes, tuple[str, str] | None]] = [
    (b'{"kind":"generation"}', ("generation", "the generation record is deleted")),
    (b'{"kind":"claim"}', None),
    (b'{"kind":"gap","topic":"a","partition":0,"from":5}', ("gap", "the gap record is deleted")),
    (b'{"kind":"adoption","topic":"a","partition":0}', ("adoption", "the adoption record is deleted")),
    (b'{"kind":"hand-back"}', ("taken-back", "the link is taken back")),
    (b'{"kind":"stopped","topic":"a"}', ("resumed", "topic a resumes")),
    (b'{"kind":"stopped","topic":"\xc3\xa4"}', ("resumed", "topic ä resumes")),
    (b'{"kind":"pause"}', ("resumed", "the link resumes")),
    (b'{"kind":"ends","topic":"a"}', None),
    (b'{"kind":"seen"}', None),
    (b'{"kind":"promotion","number":1}', ("promotion", "the promotion record is deleted")),
    (b'{"kind":"reversal","number":1}', ("reversal", "the reversal record is deleted")),
    (b'{"kind":"reversal","number":2}', ("reversal", "the reversal record is deleted")),
    (b'{"kind":"restoration","number":1}', ("restoration", "the restoration record is deleted")),
    (b'{"kind":"resumption","number":1}', ("resumption", "the resumption record is deleted")),
    (b'{"kind":"fence","number":2}', ("fence", "the fence record is deleted")),
    (b'{"kind":"recreation"}', ("recreation", "the recreation record is deleted")),
    (b'{"kind":"copy-back"}', ("copy-back", "the copy-back record is deleted")),
    (b'{"kind":"restarts","lane":3}', ("restarts", "the restarts record is deleted")),
    (b'{"kind":"groups-left"}', None),
    (b'{"kind":"verification","topic":"a"}', ("verification", "the verification record is deleted")),
    (b'{"kind":"tail"}', ("tail", "the tail record is deleted")),
    (b'{"kind":"drill"}', ("drill", "the drill record is deleted")),
    (b'{"kind":"own","of":"acl","entry":"[]"}', None),
    (b'{"kind":"alike"}', None),
    (b'{"kind":"part","of":"promotion","number":1,"part":0}', ("part", "the part record is deleted")),
    (b'{"kind":"later","topic":"a"}', ("later", "the later record is deleted")),
]  # fmt: skip

# fields that later releases have added, by kind
LATER = {
    "generation": {"since"},
    "seen": {"rate"},
    "claim": {"alone", "command"},
    "ends": {"starts"},
    "promotion": {"at_least", "ends_at", "uncut"},
    "reversal": {"cuts"},
    "restoration": {"lost", "ranges"},
    "fence": {"lifting", "source_cluster_id"},
    "copy-back": {"command"},
    "verification": {"differences", "from_offset", "host", "problem", "since"},
    "tail": {"host", "problem"},
    "drill": {"problem", "stage"},
    "own": {"gone_since", "values"},
    "alike": {"changed", "changed_at", "problems"},
}  # fmt: skip

PARTS: tuple[Any, list[tuple[bytes, bytes]]] = (
    Resumption(number=1, link="back", starts={A0: 2, B1: 130}, run="r", timestamp=10),
    [
        (
            b'{"kind":"part","of":"resumption","number":1,"part":0}',
            b'{"v":1,"starts":{"a":{"0":2}}}',
        ),
        (
            b'{"kind":"part","of":"resumption","number":1,"part":1}',
            b'{"v":1,"starts":{"b":{"1":130}}}',
        ),
        (
            b'{"kind":"resumption","number":1}',
            b'{"v":2,"link":"back","starts":{},"run":"r","timestamp":10,"parts":2}',
        ),
    ],
)  # fmt: skip
PARTS_OF_TOPICS: tuple[Any, list[tuple[bytes, bytes]]] = (
    promotion(),
    [
        (
            b'{"kind":"part","of":"promotion","number":1,"part":0}',
            (b'{"v":1,"topics":{"a":{"topic_id":"s","target":"east.a","target_topic_id":"t","partitions'
            b'":{"0":[100,90,7,105]}}}}'),
        ),
        (
            b'{"kind":"part","of":"promotion","number":1,"part":1}',
            (b'{"v":1,"topics":{"b":{"topic_id":"s","target":"east.b","target_topic_id":"t","partitions'
            b'":{"1":[100,90,7,101],"2":[100,90,7,100]}}}}'),
        ),
        (
            b'{"kind":"promotion","number":1}',
            (b'{"v":2,"planned":false,"run":"r","host":"h","generation":4,"source_cluster_id":"S","targ'
            b'et_cluster_id":"T","groups":{"moved":3,"kept":1},"started":8,"timestamp":9,"milliseconds'
            b'":{"take":12,"cut":3},"topics":{},"parts":2}'),
        ),
    ],
)  # fmt: skip


@pytest.mark.parametrize(("record", "key", "value"), [each[:3] for each in GOLDEN])
def test_a_record_has_these_bytes_and_is_read_from_them(record: Any, key: bytes, value: bytes) -> None:
    """Both directions; a field that a newer release adds to the value is ignored."""
    assert (record.key(), record.value()) == (key, value)
    assert read(key, value) == record
    assert read(key, value[:-1] + b',"later":[1]}') == record


@pytest.mark.parametrize(("key", "value", "sentence"), [each[1:] for each in GOLDEN])
def test_a_record_has_this_sentence(key: bytes, value: bytes, sentence: str | None) -> None:
    """In the timeline of the link; None if it is no event."""
    found = [event.text for event in link_events([(key, value, 9)], [])]
    assert found == ([] if sentence is None else [sentence])


@pytest.mark.parametrize(("key", "sentence"), DELETED)
def test_a_deleted_record_has_this_sentence(key: bytes, sentence: tuple[str, str] | None) -> None:
    """Kind and text."""
    found = [(event.kind, event.text) for event in link_events([(key, None, 9)], [])]
    assert found == ([] if sentence is None else [sentence])


@pytest.mark.parametrize("records", [PARTS, PARTS_OF_TOPICS])
def test_a_record_in_parts_has_these_bytes(records: tuple[Any, list[tuple[bytes, bytes]]]) -> None:
    """The deciding one comes last, with version 2."""
    record, written = records
    assert encoded(record, most=1) == written
    assert of(decode_control([(*each, WHERE) for each in written]).history) == [record]


@pytest.mark.parametrize(("key", "value"), [each[1:3] for each in GOLDEN])
def test_each_field_is_needed_or_has_a_default(key: bytes, value: bytes) -> None:
    """What an earlier release has not written is read; without any other field the record is not."""
    body = orjson.loads(value)
    kind = orjson.loads(key)["kind"]
    for name in body.keys() - {"v"} - LATER.get(kind, set()):
        without = orjson.dumps({field: found for field, found in body.items() if field != name})
        assert read(key, without) is None, name
    rest = orjson.dumps({name: found for name, found in body.items() if name not in LATER.get(kind, ())})
    assert read(key, rest) is not None


def test_every_version_but_the_first_is_refused() -> None:
    """Of each kind, also of those that only inform."""
    for _, key, value, _ in GOLDEN:
        newer = orjson.dumps({**orjson.loads(value), "v": 3})
        with pytest.raises(StateError, match=f"{WHERE}: a .* record has version 3, this release knows 1"):
            decode_control([(key, newer, WHERE)])
        assert decode_reports([(key, newer)]) == Reports()


def read(key: bytes, value: bytes) -> Any:
    """Returns the record as its reader gives it; None if it is refused or skipped."""
    reports = decode_reports([(key, value)])
    try:
        view = decode_control([(key, value, WHERE)])
    except StateError:
        return None
    if view.ends:
        topic = orjson.loads(key)["topic"]
        return SourceEnds(
            topic=topic,
            ends={source.partition: end for source, end in view.ends.items()},
            starts={source.partition: start for source, start in view.starts.items()},
        )
    if view.seen is not None:
        return SourceSeen(timestamp=view.seen, rate=view.seen_rate)
    if view.dated:
        try:
            return ControlEntry.of(key, value).record()
        except RecordError:
            return None
    singles = (view.generation, view.claim, view.handed_over, view.pause, view.recreation, view.copy_back)
    informative = (
        *reports.restarts, *reports.verifications, *reports.standbys, reports.drill, reports.tail, reports.left,
        *reports.own, reports.comparison, reports.refused, reports.schemas,
    )  # fmt: skip
    found = [
        each
        for each in (*singles, *view.gaps, *view.adopted, *view.stopped, *of(view.history), *informative)
        if each is not None
    ]
    assert len(found) <= 1
    assert view == ControlView() or not any(informative)
    return found[0] if found else None


def of(history: PromotionHistory) -> list[Any]:
    """Returns all records of a history."""
    kinds = (
        history.promotions, history.reversals, history.restorations, history.resumptions, history.fences,
    )  # fmt: skip
    return [each for kind in kinds for each in kind.values()]

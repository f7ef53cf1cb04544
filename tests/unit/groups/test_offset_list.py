"""Files of offsets that sinks and Spark jobs keep in a store of their own."""

from __future__ import annotations

import pytest

from eomirror.errors import UsageError
from eomirror.groups.transfer import read_offset_list

WANTED = [("orders", 0, 1000), ("orders", 1, 998)]
SPARK = b'{"orders":{"0":1000,"1":998}}'
ROWS = b'[{"topic":"orders","partition":0,"offset":1000},{"topic":"orders","partition":1,"offset":998}]'


@pytest.mark.parametrize(
    "content",
    [
        ROWS,
        b'{"offsets": ' + ROWS + b"}",
        SPARK,
        b'v1\n{"batchWatermarkMs":0,"conf":{}}\n' + SPARK,
        b'v1\n{"batchWatermarkMs":0}\n-\n{"orders":{"0":1000}}\n{"orders":{"1":998}}\n',
    ],
)
def test_each_form_is_read(content: bytes) -> None:
    """JSON of rows, Spark's own JSON, and a file of its checkpoint with several sources."""
    assert read_offset_list(content, "f") == WANTED


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "not JSON"),
        (b"[]", "no offset"),
        (b"7", "is no list"),
        (b"v1\n{}\nx", "not JSON"),
        (b'[{"topic":"t","partition":0}]', "no topic, partition and offset"),
        (b'[{"topic":"t","partition":true,"offset":1}]', "no partition"),
        (b'{"t":{"0":-2}}', "-2 is not an offset"),
        (b'{"t":{"x":2}}', "no partition"),
        (b'{"t":5}', "no partitions"),
        (b'[{"topic":"t","partition":0,"offset":1},{"topic":"t","partition":0,"offset":2}]', "two offsets"),
    ],
)
def test_a_file_that_is_none_is_refused_with_the_reason(content: bytes, reason: str) -> None:
    """And what to write."""
    with pytest.raises(UsageError, match=reason) as refused:
        read_offset_list(content, "f")
    assert "Spark" in refused.value.fix

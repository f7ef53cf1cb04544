"""What a worker asks of the C library's allocator."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = """
import ctypes, resource, sys
from eomirror.spark.task import keep_freed_memory

if sys.argv[1] == "kept" and not keep_freed_memory():
    sys.exit(4)
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]

def faults_of_one_round():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    blocks = [libc.malloc(100_000) for _ in range(200)]
    for block in blocks:
        ctypes.memset(block, 1, 100_000)
    for block in blocks:
        libc.free(block)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults_of_one_round()
print(faults_of_one_round())
"""


def _faults(how: str) -> int:
    run = subprocess.run([sys.executable, "-c", _PROGRAM, how], capture_output=True, text=True, check=False)
    if run.returncode == 4:
        pytest.skip("the C library has no mallopt")
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


def test_memory_that_was_freed_is_used_again_without_page_faults() -> None:
    """Twenty megabytes are about 5,000 pages; a second round takes them from the kernel once more, or keeps them."""
    assert _faults("default") > 4_000
    assert _faults("kept") < 500

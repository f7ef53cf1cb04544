"""
The C library's allocator, for a process that fetches and frees megabytes many times a second.

glibc gives freed memory back to the kernel as soon as 128 KiB lie free at the top of a heap, and takes blocks of that
size from the kernel one by one at first.  A lane's fetch buffers and messages are allocated and freed all the time,
so the kernel would clear the same pages over and over: 0.25 to 0.30 page faults per record of 1 kB, and 0.06 with
these settings (measured; `mallopt(3)` has their meaning).  The price: up to `_KEEP_BYTES` stay with the process in
every heap when a lane has nothing to do.
"""

from __future__ import annotations

import ctypes

__all__ = ["keep_freed_memory"]

# <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

_KEEP_BYTES = 64 * 2**20
# the most that glibc accepts: half of a heap
_MOST_MMAP_THRESHOLD = 32 * 2**20
_PAD_BYTES = 2**20


def keep_freed_memory() -> bool:
    """Let glibc keep freed memory for the next allocation; False where the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(
        mallopt(parameter, value) == 1
        for parameter, value in (
            (_M_MMAP_THRESHOLD, _MOST_MMAP_THRESHOLD),
            (_M_TRIM_THRESHOLD, _KEEP_BYTES),
            (_M_TOP_PAD, _PAD_BYTES),
        )
    )

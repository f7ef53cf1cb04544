"""
Tunes glibc's allocator for a process that allocates and frees megabytes many times a second.

glibc returns freed memory to the kernel as soon as 128 KiB are free at the top of a heap, and initially takes blocks of
that size from the kernel one by one.  A lane allocates and frees fetch buffers and messages all the time, so the kernel
would clear the same pages repeatedly: 0.25 to 0.30 page faults per record of 1 kB, and 0.06 with these settings
(measured; see `mallopt(3)`).  The price: up to `_KEEP_BYTES` per heap stay allocated while a lane is idle.
"""

from __future__ import annotations

import ctypes

__all__ = ["keep_freed_memory"]

# <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

_KEEP_BYTES = 64 * 2**20
# glibc's maximum: half of a heap
_MOST_MMAP_THRESHOLD = 32 * 2**20
_PAD_BYTES = 2**20


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory for the next allocation; returns False if the C library has no such setting."""
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

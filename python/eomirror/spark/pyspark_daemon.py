"""
PySpark's daemon with the modules of a lane loaded: forked workers share them instead of importing them again.

A local master starts it in place of ``pyspark.daemon`` (`spark.python.daemon.module`).  The imports of a lane take
about a second of CPU in each worker, on a busy machine.  What is imported here starts no thread and loads no
librdkafka, because a fork would lose both (`eomirror.spark.task` refuses such a daemon).

Under other masters the daemon runs where eomirror may come with the task, so they keep PySpark's own.
"""

from __future__ import annotations

import gc
import importlib

from pyspark import daemon

from eomirror.spark.task import FORKED_MODULES

__all__ = ["load_modules"]


def load_modules() -> None:
    """Imports the modules of a lane that may be loaded before a fork."""
    for name in FORKED_MODULES:
        importlib.import_module(name)
    # a collection in a worker would write to every object, and each worker then has a copy of all modules
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    load_modules()
    daemon.manager()

"""
PySpark's daemon with the modules of a lane loaded: forked workers share them instead of importing them again.

A local master starts it in place of ``pyspark.daemon`` (`spark.python.daemon.module`).  The imports of a lane take
about a second of CPU in each worker, on a busy machine.  What is imported here starts no thread and loads no
librdkafka, because a fork would lose both (`eomirror.spark.task` refuses such a daemon).

Under other masters the daemon runs where eomirror may come with the task, so they keep PySpark's own.
"""

from __future__ import annotations

from pyspark import daemon

from eomirror.spark.task import load_forked_modules

if __name__ == "__main__":
    load_forked_modules()
    daemon.manager()

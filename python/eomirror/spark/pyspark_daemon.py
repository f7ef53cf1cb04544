"""
PySpark's daemon with the modules of a lane loaded: forked workers share them instead of importing them again.

A local master starts it in place of ``pyspark.daemon`` (`spark.python.daemon.module`).  The imports of a lane take
about a second of CPU in each worker, on a busy machine.  What is imported here starts no thread and loads no
librdkafka, because a fork would lose both (`eomirror.spark.task` refuses such a daemon).

Spark puts the archive of its Python modules first on the path.  Python keeps no bytecode of what it imports from there:
the daemon would compile PySpark for 0.8 s, and each worker for 0.1 s more.  So an archive that belongs to an installed
package leaves the path, and with it Spark's own jar, which Spark puts there for modules of packages of another kind: a
look for a package's version would read the names of its six thousand classes.

Under other masters the daemon runs where eomirror may come with the task, so they keep PySpark's own.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["without_archives"]


def without_archives(path: list[str]) -> list[str]:
    """Returns a module path without PySpark's archives and jars, if the package that contains them is on it, too."""
    for entry in path:
        package = Path(entry).parents[2] if entry.endswith("/python/lib/pyspark.zip") else None
        if package is not None and str(package.parent) in path and (package.parent / "py4j").is_dir():
            theirs = (Path(entry).parent, package / "jars")
            return [each for each in path if Path(each).parent not in theirs]
    return path


if __name__ == "__main__":
    sys.path[:] = without_archives(sys.path)

    from pyspark import daemon

    from eomirror.spark.task import load_forked_modules

    load_forked_modules()
    daemon.manager()

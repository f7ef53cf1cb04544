r"""
The program for ``spark-submit``, with the options of ``eomirror run``::

    spark-submit --master spark://host:7077 \
        "$(python -c 'import eomirror.cli.submit as program; print(program.__file__)')" \
        mirror.yaml --until caught-up

Spark's settings are then those of spark-submit, under the same rules as ``--spark-conf``; under a master that
nobody chose (spark-submit makes it ``local[*]``) the mirror takes ``local[256]``.  eomirror must be installed
where ``PYSPARK_PYTHON`` points, on the workers too.  Client deploy mode; with YARN and Kubernetes cluster mode,
ship the configuration with ``--files``.

The driver is a child of the JVM here, so a signal must go to the Python process: a JVM that ends takes the lanes with
it, which loses nothing but the open transactions.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Run ``eomirror run`` with these arguments; never returns."""
    # this file's folder came first on the path, where our modules would hide others of the same name
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [entry for entry in sys.path if not entry or str(Path(entry).resolve()) != here]
    from eomirror.cli.app import main as command

    command(["run", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])

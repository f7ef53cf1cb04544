r"""
Program for ``spark-submit``, with the options of ``eomirror run``, or of ``eomirror backfill`` behind that word::

    spark-submit --master spark://host:7077 \
        "$(python -c 'import eomirror.cli.submit as program; print(program.__file__)')" \
        mirror.yaml --until caught-up

Settings of spark-submit follow the same rules as ``--spark-conf``; the section ``spark`` of the configuration wins over
them, but for the master.  If no master was chosen, spark-submit sets ``local[*]`` and the mirror uses ``local[256]``.

eomirror must be installed where ``PYSPARK_PYTHON`` points, on the workers too.  Client deploy mode; with YARN and
Kubernetes cluster mode, ship the configuration with ``--files``.

The driver is a child of the JVM, so send signals to the Python process.  A JVM that ends takes the lanes with it,
which aborts the open transactions and loses no record.
"""

from __future__ import annotations

import sys
from pathlib import Path

__all__ = ["main"]


def main(arguments: list[str]) -> None:
    """Runs ``eomirror run``, or ``eomirror backfill`` if that is the first of these arguments; never returns."""
    # Python put this file's folder first on the path, where our modules would hide others of the same name
    here = str(Path(__file__).resolve().parent)
    sys.path[:] = [entry for entry in sys.path if not entry or str(Path(entry).resolve()) != here]
    from eomirror.cli.app import main as command

    command(arguments if arguments[:1] == ["backfill"] else ["run", *arguments])


if __name__ == "__main__":
    main(sys.argv[1:])

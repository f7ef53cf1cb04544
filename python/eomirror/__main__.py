"""``python -m eomirror``: runs the ``eomirror`` command."""

from eomirror.cli.app import main

if __name__ == "__main__":
    main()

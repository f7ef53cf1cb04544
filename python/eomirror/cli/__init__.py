"""The ``eomirror`` command line; one module per subcommand."""

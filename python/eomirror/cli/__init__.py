"""The eomirror command; one subcommand a file."""

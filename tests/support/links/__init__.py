"""Links of tests: a configuration, a mirror in this process or as a command, a link under traffic, a disaster."""

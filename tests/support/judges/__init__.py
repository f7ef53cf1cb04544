"""What decides whether a test passed, without the code under test: readers, ledgers, browsers, terminals."""

"""Names, filters, loops and lane layouts: pure decisions about which record goes where."""

"""This mirror beside MirrorMaker 2: same workloads, same brokers, same run, copies verified before any figure."""

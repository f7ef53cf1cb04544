"""
Scenery of tests: clusters, links, traffic, judges and fakes; tests/README.md says which to take.

`support.clusters.frames`, `rules` and `decider` decide what happens to a frame, pure; `proxy` carries
it out on sockets, `apart` does so in a process of its own, and `rig` puts a proxy before each cluster.  A byte-level
proxy cannot do this work: it would have to hold one EndTxn and let everything else pass.
"""

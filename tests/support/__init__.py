"""
The fault rig: embedded clusters behind proxies that read Kafka's frames and break what a test names.

What happens to a frame is decided by pure code (`rig.frames`, `rig.rules`, `rig.decider`); `rig.proxy` carries it
out on sockets, `rig.apart` does so in a process of its own, and `rig.clusters` puts a proxy before each cluster.
A byte-level proxy cannot do this work: it would have to hold one EndTxn and let everything else pass.
"""

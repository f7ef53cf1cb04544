"""
Converts configurations of other mirrors to ours.

MirrorMaker 2's property file is converted in `eomirror.config.mm2_properties`.  This package recognises a file by its
content and leads all other forms to that converter: connectors of Kafka Connect, Strimzi's resources, and the client
files of MirrorMaker 1 and of Go MirrorMaker.  What a form cannot express here is refused by name.
"""

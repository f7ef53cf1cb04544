"""A policy of brokers, compiled for a test: `create.topic.policy.class.name` and `alter.config.policy.class.name`."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from eomirror.jvm import find_java
from eomirror.localkafka import jars

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["POLICY", "compile_policy"]

POLICY = {
    "create.topic.policy.class.name": "TestPolicy",
    "alter.config.policy.class.name": "TestPolicy",
}
"""Broker properties that name the policy."""

_SOURCE = """
import java.util.Map;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.AlterConfigPolicy;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/** Refuses topics by name and number of partitions, and by two settings; it names only one of these. */
public class TestPolicy implements CreateTopicPolicy, AlterConfigPolicy {
    public void validate(CreateTopicPolicy.RequestMetadata wanted) {
        if (wanted.topic().contains("forbidden"))
            throw new PolicyViolationException("names like this one are not allowed here");
        if (wanted.numPartitions() != null && wanted.numPartitions() == 5)
            throw new PolicyViolationException("five partitions are not allowed here");
        check(wanted.configs());
    }
    public void validate(AlterConfigPolicy.RequestMetadata wanted) {
        check(wanted.configs());
    }
    private static void check(Map<String, String> settings) {
        String retention = settings.get("retention.ms");
        if (retention != null && (Long.parseLong(retention) < 0 || Long.parseLong(retention) > 700000000L))
            throw new PolicyViolationException("retention.ms: " + retention + " is above 700000000");
        String size = settings.get("max.message.bytes");
        if (size != null && Long.parseLong(size) > 20000000L)
            throw new PolicyViolationException("messages of that size are not allowed here");
    }
    public void configure(Map<String, ?> settings) { }
    public void close() { }
}
"""


def compile_policy(folder: Path) -> Path:
    """Compiles the policy; returns the folder with its class."""
    source = folder / "TestPolicy.java"
    source.write_text(_SOURCE, encoding="ascii")
    compiler = find_java().resolve().parent / "javac"
    subprocess.run(
        [str(compiler), "-cp", jars.class_path("4.3"), str(source)], check=True, capture_output=True
    )
    return folder

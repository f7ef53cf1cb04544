"""Files that carry Java options and properties to a JVM, so that none of them is an argument of a process."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from eomirror.config.java_properties import parse_properties
from eomirror.errors import UsageError
from eomirror.jvm import find_java
from eomirror.spark.launch import argument_file, java_options, properties_file, start_failure

if TYPE_CHECKING:
    from pathlib import Path

_SECRET = "quite-a-secret"  # noqa: S105  no real secret
_OPTIONS = "spark.driver.extraJavaOptions"


def test_options_are_told_apart_as_spark_tells_them_apart() -> None:
    """Defaults first; quotation marks keep blanks."""
    given = {
        "spark.driver.defaultJavaOptions": "-Da=1",
        _OPTIONS: """-Db="two words" '-Dc=x y' -Dd=\\"e""",
    }
    assert java_options(given) == ["-Da=1", "-Db=two words", "-Dc=x y", '-Dd="e']


@pytest.mark.parametrize(
    ("options", "word", "fix"),
    [
        ("-Xmx4g", "-Xmx", "spark.driver.memory"),
        (f"-Dspark.ssl.keyPassword={_SECRET}", "-Dspark.ssl.keyPassword", "spark section"),
        (f"-Dx='{_SECRET}", "quotation", "quotation"),
    ],
)
def test_options_that_spark_would_refuse_are_refused(options: str, word: str, fix: str) -> None:
    """Spark does not see them in a file; the message shows no value."""
    with pytest.raises(UsageError, match=word) as caught:
        java_options({_OPTIONS: options})
    assert fix in caught.value.fix
    assert _SECRET not in str(caught.value)


def test_java_reads_from_the_file_what_was_written(tmp_path: Path) -> None:
    """With blanks, quotation marks, backslashes, line ends and comment signs in the values."""
    values = ["a b", 'c"d', "e\\f", "#g", "h\ni", "'j'", "ü"]
    options = [f"-Dvalue{number}={value}" for number, value in enumerate(values)]
    written = tmp_path / "options"
    written.write_text(argument_file(options), encoding="utf-8")

    shown = subprocess.run(
        [find_java(), f"@{written}", "-Dfile.encoding=UTF-8", "-XshowSettings:properties", "-version"],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip

    for number, value in enumerate(values):
        # one line for each line of the value, the first behind the name
        first, *more = value.split("\n")
        found = shown.stderr.partition(f"value{number} = ")[2].splitlines()
        assert (found[0] == first) or not value.isascii()
        assert [line.strip() for line in found[1 : 1 + len(more)]] == more


def test_properties_survive_their_file() -> None:
    """What Java's reader makes of it is what was given."""
    given = {"spark.a": "x=y: z", "spark.b": " blank\\first", "spark.c": "two\nlines", "spark.d": "#ü!"}
    assert {name: text for name, (text, _) in parse_properties(properties_file(given)).items()} == given


def test_a_jvm_that_does_not_start_is_told_by_its_exception() -> None:
    """Not by the last places of its stack; a host name that does not resolve is no matter of Java's version."""
    said = [
        'Exception in thread "main" java.lang.ExceptionInInitializerError',
        "at org.apache.spark.util.Utils$.localHostName(Utils.scala:1)",
        "Caused by: java.net.UnknownHostException: box: box: Name or service not known",
        "at java.base/java.net.InetAddress.getLocalHost(InetAddress.java:1666)",
        "... 17 more",
    ]
    reason, fix = start_failure(said, "otherwise")
    assert reason == f"{said[0]}; {said[2]}"
    assert "SPARK_LOCAL_IP" in fix
    reason, fix = start_failure(["bash: java: command not found", ""], "otherwise")
    assert reason == "bash: java: command not found"
    assert "JAVA_HOME" in fix
    assert start_failure([], "otherwise")[0] == "otherwise"


def test_modules_that_are_loaded_before_a_fork_do_not_load_librdkafka() -> None:
    """Its threads do not survive a fork: a worker of such a daemon refuses every lane."""
    code = (
        "import importlib, sys\n"
        "from eomirror.spark.task import FORKED_MODULES\n"
        "for name in FORKED_MODULES:\n"
        "    importlib.import_module(name)\n"
        "print([name for name in sys.modules if name.startswith('confluent_kafka')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

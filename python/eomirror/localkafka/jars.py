"""
The jars of Apache Kafka: fetched once by Spark's own Ivy, checked, and kept.

``kafka-*.lock`` lists every jar of a version with its SHA-256.  Ivy is asked for exactly these, without
following dependencies: what we run never depends on what a POM says today, and no POM is fetched, which
halves the requests.  The Ivy is the one that PySpark ships and that ``spark-submit --packages`` uses; it runs
as a child JVM of its own, so no Spark context and no Py4J are started.  As with Spark, the variable
``DEFAULT_ARTIFACT_REPOSITORY`` names another repository in place of Maven Central
(https://spark.apache.org/docs/latest/submitting-applications.html#advanced-dependency-management).

scala-library and scala-reflect are not fetched: PySpark's folder holds them.

In the cache folder::

    kafka-4.3.1-1a2b3c4d/*.jar   complete and checked: it is renamed into place as the last step
    kafka-4.3.1-1a2b3c4d.lock    held during a fetch, so that a second process waits for the first
    kafka-4.3.1-1a2b3c4d.part/   what a fetch that failed had got; the next one goes on from there

The last part of the name stands for the list of jars, so that another list gets a folder of its own.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import threading
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from xml.sax.saxutils import quoteattr

from eomirror.errors import MirrorError, UsageError
from eomirror.jvm import cache_folder, find_java
from eomirror.localkafka.progress import OnProgress, Step, quiet

__all__ = [
    "DEFAULT_KAFKA",
    "KAFKA_VERSIONS",
    "Jar",
    "class_path",
    "exact_version",
    "jar_folder",
    "kafka_archive",
    "parse_lock",
    "spark_jars_folder",
]

KAFKA_VERSIONS = {"4.3": "4.3.1", "3.9": "3.9.2", "3.6": "3.6.2", "3.3": "3.3.2", "2.8": "2.8.2"}
"""The lines of Kafka that we can start, and the pinned release of each."""

DEFAULT_KAFKA = "4.3"

# a jar is a few hundred kB, so a fetch is bound by round trips; four Ivys side by side are 3 times as fast as one
_SHARDS = 4
_FETCHED = re.compile(r"\[SUCCESSFUL \]")


@dataclass(frozen=True, slots=True)
class Jar:
    """
    One jar by its Maven coordinates.

    Attributes:
        group: Its group.
        artifact: Its name.
        version: Its version.
        sha256: SHA-256 in hexadecimal.
        classifier: Part of the version's files that it is; empty for the main one.
        extension: Ending of its name, if it is another archive.
    """

    group: str
    artifact: str
    version: str
    sha256: str
    classifier: str = ""
    extension: str = "jar"

    @property
    def file_name(self) -> str:
        """Name of the file in the cache, which is that on Maven Central too."""
        part = f"-{self.classifier}" if self.classifier else ""
        return f"{self.artifact}-{self.version}{part}.{self.extension}"


def parse_lock(text: str) -> tuple[Jar, ...]:
    """Jars of a lock file: ``group:artifact:version sha256`` a line, ``#`` starts a comment."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    jars = []
    for line in lines:
        coordinates, sha256 = line.split()
        group, artifact, version = coordinates.split(":")
        jars.append(Jar(group, artifact, version, sha256))
    return tuple(jars)


def exact_version(kafka_version: str) -> str:
    """
    The pinned release of a line such as ``4.3``.

    Raises:
        UsageError: We have no jars of it.
    """
    for line, exact in KAFKA_VERSIONS.items():
        if kafka_version in (line, exact):
            return exact
    raise UsageError(
        f"no pinned jars of Apache Kafka {kafka_version}", fix=f"use one of {', '.join(KAFKA_VERSIONS)}"
    )


def spark_jars_folder() -> Path:
    """
    Folder of the jars that PySpark ships, found without importing PySpark.

    Raises:
        MirrorError: PySpark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec and spec.origin else None
    if folder is None or not folder.is_dir():
        raise MirrorError(
            "no PySpark with its jars in this Python", fix="install the full package: pip install pyspark"
        )
    return folder


def class_path(kafka_version: str = DEFAULT_KAFKA, *, on_progress: OnProgress = quiet) -> str:
    """
    The Java class path of a Kafka version; fetches its jars if the cache does not hold them yet.

    Args:
        kafka_version: A key of `KAFKA_VERSIONS`.
        on_progress: Told how many jars have arrived; not called when there is nothing to fetch.

    Raises:
        UsageError: A version that we do not know.
        MirrorError: No Java or PySpark, no network, or a jar that is not the pinned one.
    """
    exact = exact_version(kafka_version)
    jars = _locked(exact)
    folder = jar_folder(f"kafka-{exact}", f"Apache Kafka {exact}", jars, on_progress=on_progress)
    scala = [
        path
        for name in ("scala-library", "scala-reflect")
        for path in spark_jars_folder().glob(f"{name}-2.13.*")
    ]
    return os.pathsep.join(map(str, [*(folder / jar.file_name for jar in jars), *sorted(scala)]))


def jar_folder(name: str, title: str, jars: tuple[Jar, ...], *, on_progress: OnProgress = quiet) -> Path:
    """
    Returns the folder of the cache that holds these jars; fetches them if it does not exist yet.

    Args:
        name: The first part of its name.
        title: Program that they belong to, in messages.
        jars: All of them.
        on_progress: Told how many jars have arrived.

    Raises:
        MirrorError: No Java or PySpark, no network, or a jar that is not the pinned one.
    """
    folder = cache_folder() / f"{name}-{_lock_id(jars)}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f"{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not folder.is_dir():
                _fetch(title, jars, folder, on_progress)
    return folder


def kafka_archive(kafka_version: str, class_path: str) -> tuple[str, list[Path]]:
    """Returns the name and the jars of a broker version, for `eomirror.jvm.class_archive`."""
    return f"kafka-{exact_version(kafka_version)}", [Path(jar) for jar in class_path.split(os.pathsep)]


def _locked(exact: str) -> tuple[Jar, ...]:
    line = exact.rpartition(".")[0]
    return parse_lock(
        resources.files("eomirror.localkafka").joinpath(f"kafka-{line}.lock").read_text("utf-8")
    )


def _lock_id(jars: tuple[Jar, ...]) -> str:
    """Short digest of a lock: jars that were kept for another list of jars are not ours."""
    return hashlib.sha256("".join(jar.sha256 for jar in jars).encode()).hexdigest()[:8]


def _fetch(title: str, jars: tuple[Jar, ...], folder: Path, on_progress: OnProgress) -> None:
    """Fill ``folder`` in one rename, so that it is either absent or complete and checked."""
    part = folder.with_name(f"{folder.name}.part")
    fresh = part / "jars"
    fresh.mkdir(parents=True, exist_ok=True)
    wanted = [jar for jar in jars if _digest(fresh / jar.file_name) != jar.sha256]
    counter = _Counter(f"fetching {title}", len(jars) - len(wanted), len(jars), on_progress)
    shards = [wanted[start::_SHARDS] for start in range(min(_SHARDS, len(wanted)))]
    ivys = [_Ivy(part / f"ivy-{number}", title, shard, fresh, counter) for number, shard in enumerate(shards)]
    for ivy in ivys:
        ivy.start()
    for ivy in ivys:
        ivy.join()
    for ivy in ivys:
        ivy.check()
    for jar in jars:
        found = _digest(fresh / jar.file_name)
        if found != jar.sha256:
            (fresh / jar.file_name).unlink(missing_ok=True)
            shutil.rmtree(part, ignore_errors=True)
            raise MirrorError(
                f"{jar.group}:{jar.artifact}:{jar.version} is not the pinned jar: sha256 {found or 'missing'}, "
                f"expected {jar.sha256}",
                fix="check the repository that DEFAULT_ARTIFACT_REPOSITORY or your proxy serves, then try again",
            )
    fresh.replace(folder)
    shutil.rmtree(part, ignore_errors=True)


def _digest(path: Path) -> str:
    """SHA-256 of a file in hexadecimal; empty when there is no such file."""
    if not path.is_file():
        return ""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Counter:
    """Counts jars that arrive through several Ivys."""

    def __init__(self, name: str, done: int, total: int, on_progress: OnProgress) -> None:
        self._name, self._done, self._total, self._on_progress = name, done, total, on_progress
        self._lock = threading.Lock()
        on_progress(Step(name, done, total))

    def one_more(self) -> None:
        with self._lock:
            self._done = min(self._done + 1, self._total)
            self._on_progress(Step(self._name, self._done, self._total))


class _Ivy:
    """One child JVM that fetches some jars into a folder, and the thread that reads what it says."""

    def __init__(self, work: Path, title: str, jars: list[Jar], target: Path, counter: _Counter) -> None:
        work.mkdir(parents=True, exist_ok=True)
        (work / "settings.xml").write_text(_ivy_settings(work / "cache"), encoding="utf-8")
        (work / "ivy.xml").write_text(_ivy_module(jars), encoding="utf-8")
        ivy = next(spark_jars_folder().glob("ivy-*.jar"), None)
        if ivy is None:
            raise MirrorError("PySpark's jars hold no Ivy", fix="install PySpark 4.1 or newer")
        self._command = [
            *(
                str(find_java()),
                "-Xmx128m",
                "-XX:TieredStopAtLevel=1",
                "-cp",
                str(ivy),
                "org.apache.ivy.Main",
            ),
            *("-settings", str(work / "settings.xml"), "-ivy", str(work / "ivy.xml"), "-notransitive"),
            *("-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        self._title, self._counter = title, counter
        self._lines: list[str] = []
        self._returncode = -1
        self._thread = threading.Thread(target=self._run, name="ivy", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def check(self) -> None:
        """Raise MirrorError when a jar could not be fetched, with the lines of Ivy that tell why."""
        if self._returncode == 0:
            return
        signs = ("ERROR", "WARN", "not found", "Exception", "timed out")
        why = [line.strip() for line in self._lines if any(sign in line for sign in signs)] or self._lines[
            -5:
        ]
        shown = "\n  ".join(dict.fromkeys(line for line in why if line.strip(":= ")))
        raise MirrorError(
            f"the jars of {self._title} could not be fetched:\n  {shown[:1200]}",
            fix="check the network, then try again (what has arrived is kept); behind a proxy set JAVA_TOOL_OPTIONS="
            "'-Dhttps.proxyHost=HOST -Dhttps.proxyPort=PORT'; for another Maven repository set "
            "DEFAULT_ARTIFACT_REPOSITORY to its address",
        )

    def _run(self) -> None:
        child = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        with child:
            for line in child.stdout or ():
                self._lines.append(line.rstrip())
                if _FETCHED.search(line):
                    self._counter.one_more()
        self._returncode = child.returncode


def _ivy_settings(cache: Path) -> str:
    other = os.environ.get("DEFAULT_ARTIFACT_REPOSITORY")
    root = f"root={quoteattr(other)} " if other else ""  # Ivy's own default is Maven Central
    return (
        '<ivysettings><settings defaultResolver="kafka"/>'
        f"<caches defaultCacheDir={quoteattr(str(cache))}/>"
        '<resolvers><ibiblio name="kafka" m2compatible="true" usepoms="false" useMavenMetadata="false" '
        f"{root}/></resolvers></ivysettings>"
    )


def _ivy_module(jars: list[Jar]) -> str:
    rows = (
        f"<dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)} "
        'conf="default->default" transitive="false">'
        f"<artifact name={quoteattr(jar.artifact)} type={quoteattr(jar.extension)} ext={quoteattr(jar.extension)}"
        f"{f' m:classifier={quoteattr(jar.classifier)}' if jar.classifier else ''}/></dependency>"
        for jar in jars
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="eomirror" module="kafka"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(rows)}</dependencies></ivy-module>"
    )

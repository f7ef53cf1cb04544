"""
Embedded Apache Kafka for trying things out, for tests and for benchmarks.

Real brokers (KRaft, combined with the controller) in child ``java`` processes on the loopback address; those before
Kafka 3 have a ZooKeeper in one more::

    with LocalCluster.start(ClusterSpec("east")) as east:
        print(east.bootstrap_servers)

Every broker has a CLIENT listener for applications and a plaintext INTERNAL one, which brokers use among
themselves and tests use to look past a proxy or a refused right.  A cluster that was started as a library ends
with the program (see orphans.py); `LocalCluster.detach` lets it live on.

The storage of new brokers is formatted with Kafka's own StorageTool.  The certificate authority and the brokers' key
are made with the ``keytool`` that every Java runtime has, as two certificates: strict clients refuse a CA certificate
as a server's own.  Nothing leaves the cluster's folder; the CA's key is thrown away after its only use.
https://docs.oracle.com/en/java/javase/17/docs/specs/man/keytool.html
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

from eomirror.clock import Deadline, new_token
from eomirror.errors import ClusterError, MirrorError, UsageError
from eomirror.jvm import archive_arguments, find_java, find_keytool
from eomirror.localkafka import orphans
from eomirror.localkafka.broker import Broker, end_processes, failure_lines
from eomirror.localkafka.jars import class_path, exact_version, kafka_archive
from eomirror.localkafka.ports import HOST, free_ports, is_free
from eomirror.localkafka.progress import OnProgress, Step, quiet
from eomirror.localkafka.settings import (
    KeyStore,
    NodePorts,
    broker_properties,
    jvm_arguments,
    logging_file,
    render_properties,
    zookeeper_properties,
)
from eomirror.localkafka.spec import ADMIN, CLIENT, CONTROLLER, INTERNAL, ClusterSpec, Listener, Security

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    import psutil


__all__ = [
    "ADMIN",
    "Broker",
    "ClusterSpec",
    "Listener",
    "LocalCluster",
    "Security",
    "format_storage",
    "make_keys",
    "new_cluster_id",
    "read_cluster_id",
    "scram_argument",
]

# a free port can be taken between our look and the broker's bind; three misses in a row are something else
_PORT_TRIES = 3
_PROPERTIES = "server.properties"
_ZOOKEEPER = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_IN_USE = "Address already in use"


class LocalCluster:
    """
    A running cluster; made by `start`.

    Attributes:
        spec: What was asked for.
        folder: Where everything of it lies.
        cluster_id: As brokers tell it.
        brokers: In the order of their node ids, from 1.
        temporary: Whether `destroy` at the end of a ``with`` block removes the folder.
    """

    def __init__(self, spec: ClusterSpec, *, class_path: str) -> None:
        self.spec = spec
        self.temporary = spec.data_dir is None
        if spec.data_dir is None:
            self.folder = Path(tempfile.mkdtemp(prefix=f"eomirror-{spec.name}-"))
        else:
            self.folder = spec.data_dir.absolute()
            self.folder.mkdir(parents=True, exist_ok=True)
        self.cluster_id = ""
        self.brokers: list[Broker] = []
        self._class_path = class_path
        self._keys: KeyStore | None = None
        self._users: dict[str, str] = {}
        self._watcher: subprocess.Popen[str] | None = None
        # before Kafka 3: it takes no part in the cluster's calls
        self._zookeeper: Broker | None = None

    @classmethod
    def start(
        cls, spec: ClusterSpec, *, on_progress: OnProgress = quiet, timeout: float = 60.0
    ) -> LocalCluster:
        """
        Start a cluster and wait until all its brokers serve.

        Args:
            spec: What to start.
            on_progress: Told about jars that arrive (the first time) and brokers that serve.
            timeout: Seconds that brokers may take after the jars are there.

        Raises:
            UsageError: The specification cannot work, or a chosen port is taken.
            ClusterError: A broker ended or did not serve in time; its own words are in the message.
            MirrorError: Java, PySpark or the jars are missing.
        """
        path = class_path(spec.kafka_version, on_progress=on_progress)
        step = f"starting {spec.name} (Apache Kafka {exact_version(spec.kafka_version)})"
        on_progress(Step(step, 0, spec.brokers))
        cluster = cls(spec, class_path=path)
        try:
            cluster._prepare()
            cluster._start_brokers(
                Deadline(timeout), lambda count: on_progress(Step(step, count, spec.brokers))
            )
        except BaseException:
            cluster._end_brokers(graceful=False)
            if cluster.temporary:
                shutil.rmtree(cluster.folder, ignore_errors=True)
            raise
        return cluster

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.temporary:
            self.destroy()
        else:
            self._end_brokers(graceful=True)

    def __repr__(self) -> str:
        return f"LocalCluster({self.spec.name!r}, {self.bootstrap_servers!r})"

    @property
    def bootstrap_servers(self) -> str:
        """Addresses of the CLIENT listener, as clients want them."""
        return self.servers(CLIENT)

    @property
    def internal_servers(self) -> str:
        """Addresses of the plaintext INTERNAL listener: past every proxy, and allowed to do everything."""
        return self.servers(INTERNAL)

    def servers(self, listener: str, *, advertised: bool = False) -> str:
        """
        Addresses of one listener.

        Args:
            listener: Its name.
            advertised: Those that brokers tell clients, instead of those that they listen on.
        """
        found = []
        for broker in self.brokers:
            port = broker.ports.bound[listener]
            found.append(f"{HOST}:{broker.ports.advertised.get(listener, port) if advertised else port}")
        return ",".join(found)

    @property
    def client_properties(self) -> dict[str, str]:
        """Everything that a librdkafka client needs for the CLIENT listener, as the user `ADMIN`."""
        return self.client_properties_of(ADMIN)

    def client_properties_of(self, user: str, *, listener: str = CLIENT) -> dict[str, str]:
        """
        Everything that a librdkafka client needs.

        Args:
            user: Who logs in, where the listener asks for it; a key of the specification's users, or `ADMIN`.
            listener: Where it connects; a listener with advertised ports is entered through these.
        """
        properties = {"bootstrap.servers": self.servers(listener, advertised=True)}
        security = next(
            (known.security for known in self.spec.listeners if known.name == listener), "plaintext"
        )
        if security != "plaintext":
            properties["security.protocol"] = security
        if security.startswith("sasl"):
            properties["sasl.mechanism"] = "SCRAM-SHA-512"
            properties["sasl.username"] = user
            properties["sasl.password"] = self._users[user]
        if security.endswith("ssl") and self._keys is not None:
            properties["ssl.ca.location"] = str(self._keys.ca_pem)
        return properties

    def stop(self, *, timeout: float = 20.0) -> None:
        """SIGTERM to all brokers, then wait; the data stays.  A single broker is started again by its `start`."""
        self._end_brokers(graceful=True, for_good=False, timeout=timeout)

    def destroy(self) -> None:
        """SIGKILL to all brokers, and remove the folder with all data."""
        self._end_brokers(graceful=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def set_kafka_version(self, kafka_version: str) -> None:
        """
        Makes each broker run another version from its next start on, with the same data, ports and properties.

        Raises:
            UsageError: The brokers of one version have a ZooKeeper, and those of the other none.
            MirrorError: Its jars are missing.
        """
        spec = replace(self.spec, kafka_version=kafka_version)
        if spec.keeps_metadata_in_zookeeper != self.spec.keeps_metadata_in_zookeeper:
            raise UsageError(
                f"cluster {spec.name}: its metadata cannot move between ZooKeeper and KRaft",
                fix=f"start another cluster with Kafka {kafka_version}",
            )
        self.spec, self._class_path = spec, class_path(kafka_version)
        nodes = {broker.node_id: broker.ports for broker in self.brokers}
        for broker in self.brokers:
            broker.command = self._write_broker(broker.node_id, nodes)

    def detach(self) -> None:
        """Let the brokers live on when this program ends; nothing may be asked of this object afterwards."""
        if self._watcher is not None and self._watcher.stdin is not None:
            for broker in self.brokers:
                self._tell_watcher(f"forget {broker.pid}")
            self._tell_watcher(f"keep {self.folder}")
            self._watcher.stdin.close()
            self._watcher.wait()
            self._watcher = None
        for broker in self.brokers:
            broker.let_go()

    def _node_folder(self, node_id: int) -> Path:
        return self.folder / f"broker-{node_id}"

    def _prepare(self) -> None:
        """Keys, users and the cluster id; what the folder holds from before wins."""
        self.folder.chmod(0o700)
        nodes = range(1, self.spec.brokers + 1)
        known = [read_cluster_id(self._node_folder(node) / "data") for node in nodes]
        before = {int(path.name.rpartition("-")[2]) for path in self.folder.glob("broker-[0-9]*")}
        if any(known) and before != set(nodes):
            raise UsageError(
                f"{self.folder} holds a cluster of {len(before)} brokers, not {self.spec.brokers}",
                fix=f"start it with {len(before)} brokers, or choose another data folder",
            )
        self.cluster_id = next(filter(None, known), "") or new_cluster_id()
        if self.spec.has_tls:
            self._keys = make_keys(self.folder / "tls")
        if self.spec.has_sasl:
            self._users = {ADMIN: self._admin_password()} | dict(self.spec.users)

    def _admin_password(self) -> str:
        path = self.folder / "admin-password"
        if not path.is_file():
            path.touch(mode=0o600)
            path.write_text(new_token(), encoding="ascii")
        return path.read_text("ascii")

    def _start_brokers(self, deadline: Deadline, on_ready: Callable[[int], None]) -> None:
        for left in reversed(range(_PORT_TRIES)):
            self._write_files(self._choose_ports())
            try:
                self._launch_all(deadline, on_ready)
            except ClusterError:
                clash = any(_IN_USE in failure_lines(broker.log_path) for broker in self.brokers)
                if not (left and clash):
                    raise
                self._end_brokers(graceful=False, for_good=False)
                for broker in self.brokers:
                    broker.log_path.unlink(missing_ok=True)
            else:
                return

    def _choose_ports(self) -> dict[int, NodePorts]:
        listeners = self.spec.listeners
        fixed = [port for listener in listeners for port in listener.ports]
        for port in fixed:
            if not is_free(port):
                raise UsageError(
                    f"cluster {self.spec.name}: port {port} is taken",
                    fix="choose another one, or none for a free one",
                )
        names = [listener.name for listener in listeners if not listener.ports] + [INTERNAL, CONTROLLER]
        free = iter(free_ports(len(names) * self.spec.brokers, taken=frozenset(fixed)))
        nodes = {}
        for index in range(self.spec.brokers):
            bound = {listener.name: listener.ports[index] for listener in listeners if listener.ports}
            bound |= {name: next(free) for name in names}
            advertised = {
                known.name: known.advertised_ports[index] for known in listeners if known.advertised_ports
            }
            nodes[index + 1] = NodePorts(bound, advertised)
        return nodes

    def _write_files(self, nodes: Mapping[int, NodePorts]) -> None:
        """Folders, properties and commands of all brokers; formats storage that is new."""
        self.brokers = []
        unformatted = []
        for node_id, ports in nodes.items():
            command = self._write_broker(node_id, nodes)
            broker = Broker(node_id, ports, self._node_folder(node_id), command, on_started=self._watch)
            self.brokers.append(broker)
            if not read_cluster_id(broker.folder / "data"):
                unformatted.append(broker.folder / _PROPERTIES)
        if self.spec.keeps_metadata_in_zookeeper:
            folder = self.folder / "zookeeper"
            properties = zookeeper_properties(nodes, data=folder / "data")
            path = folder / "zookeeper.properties"
            command = _write_program(self.spec, self._class_path, _ZOOKEEPER, path, properties)
            self._zookeeper = Broker(0, nodes[1], folder, command, on_started=self._watch)
        elif unformatted:
            jars = _whole_path(self.spec, self._class_path)
            format_storage(self.spec, jars, unformatted, cluster_id=self.cluster_id, users=self._users)

    def _write_broker(self, node_id: int, nodes: Mapping[int, NodePorts]) -> list[str]:
        """Folders and properties of a broker; returns its command."""
        folder = self._node_folder(node_id)
        data = folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        properties = broker_properties(self.spec, nodes, node_id, data=data, keys=self._keys)
        path = folder / _PROPERTIES
        return _write_program(self.spec, self._class_path, "kafka.Kafka", path, properties)

    def _launch_all(self, deadline: Deadline, on_ready: Callable[[int], None]) -> None:
        if self._zookeeper is not None:
            # brokers wait for it
            self._zookeeper.launch()
        for broker in self.brokers:
            broker.launch()
        everyone = frozenset(broker.node_id for broker in self.brokers)
        for count, broker in enumerate(self.brokers, start=1):
            broker.wait_ready(everyone, deadline)
            on_ready(count)
        # with a ZooKeeper, the first broker has made it
        self.cluster_id = read_cluster_id(self.brokers[0].folder / "data")

    def _end_brokers(self, *, graceful: bool, for_good: bool = True, timeout: float = 20.0) -> None:
        if graceful:
            end_processes([broker.process for broker in self.brokers if broker.running], timeout=timeout)
        for broker in filter(None, [*self.brokers, self._zookeeper]):
            broker.kill()
        # the watcher removes a temporary folder with its end
        if for_good and self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.close()
            self._watcher.wait()
            self._watcher = None

    def _watch(self, process: psutil.Process) -> None:
        """Makes the watcher end this process when the program ends."""
        if self._watcher is None:
            self._watcher = subprocess.Popen(
                [sys.executable, "-P", str(Path(orphans.__file__))],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
            if self.temporary:
                self._tell_watcher(f"remove {self.folder}")
        self._tell_watcher(f"watch {process.pid} {process.create_time()!r}")

    def _tell_watcher(self, line: str) -> None:
        if self._watcher is not None and self._watcher.stdin is not None:
            self._watcher.stdin.write(f"{line}\n")
            self._watcher.stdin.flush()


def _whole_path(spec: ClusterSpec, kafka_path: str) -> str:
    # behind Kafka's own: a class archive is of no use to another beginning of the class path
    return os.pathsep.join([kafka_path, *map(str, spec.classes)])


def _write_program(
    spec: ClusterSpec, kafka_path: str, main: str, path: Path, properties: Mapping[str, str]
) -> list[str]:
    """Writes a Java program's properties, and its logging configuration beside them; returns its command."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(render_properties(properties), encoding="ascii", errors="backslashreplace")
    logging = path.with_name("logging.properties")
    logging.write_text(logging_file(spec), encoding="ascii")
    performance = os.environ.get("KAFKA_JVM_PERFORMANCE_OPTS")
    command = [str(find_java()), *jvm_arguments(spec, logging, performance=performance)]
    command += archive_arguments(*kafka_archive(spec.kafka_version, kafka_path))
    return [*command, "-cp", _whole_path(spec, kafka_path), main, str(path)]


_DAYS = "825"


def make_keys(folder: Path) -> KeyStore:
    """
    The brokers' key for 127.0.0.1 and localhost; what ``folder`` holds from before is used again.

    Raises:
        MirrorError: keytool failed.
    """
    store, secret, ca_pem = folder / "broker.p12", folder / "password", folder / "ca.pem"
    if not store.is_file():
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        secret.touch(mode=0o600)
        secret.write_text(new_token(), encoding="ascii")
        _make(folder, secret, ca_pem)
    return KeyStore(store, secret.read_text("ascii"), ca_pem)


def _make(folder: Path, secret: Path, ca_pem: Path) -> None:
    ca, request, signed = folder / "ca.p12", folder / "broker.csr", folder / "broker.pem"
    fresh = folder / "broker.new.p12"
    # the password travels in a file: the arguments of a process can be read by everybody on the machine
    in_ca = ("-keystore", str(ca), "-storetype", "PKCS12", "-storepass:file", str(secret))
    in_broker = ("-keystore", str(fresh), "-storetype", "PKCS12", "-storepass:file", str(secret))
    key = ("-keyalg", "EC", "-groupname", "secp256r1", "-validity", _DAYS)
    names = "san=ip:127.0.0.1,dns:localhost"
    _keytool("-genkeypair", "-alias", "ca", "-dname", "CN=eomirror test CA", "-ext", "bc:c", *key, *in_ca)
    _keytool("-exportcert", "-rfc", "-alias", "ca", "-file", str(ca_pem), *in_ca)
    _keytool("-genkeypair", "-alias", "broker", "-dname", "CN=localhost", *key, *in_broker)
    _keytool("-certreq", "-alias", "broker", "-file", str(request), *in_broker)
    _keytool(
        *(
            "-gencert",
            "-alias",
            "ca",
            "-infile",
            str(request),
            "-outfile",
            str(signed),
            "-rfc",
            "-validity",
            _DAYS,
        ),
        *("-ext", names, "-ext", "eku=serverAuth", *in_ca),
    )
    _keytool("-importcert", "-noprompt", "-alias", "ca", "-file", str(ca_pem), *in_broker)
    _keytool("-importcert", "-noprompt", "-alias", "broker", "-file", str(signed), *in_broker)
    for path in (ca, request, signed):
        path.unlink()
    fresh.replace(folder / "broker.p12")


def _keytool(*arguments: str) -> None:
    command = [str(find_keytool()), "-J-Xshare:auto", "-J-XX:TieredStopAtLevel=1", *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if answer.returncode != 0:
        raise MirrorError(
            f"keytool {arguments[0]} failed: {(answer.stdout + answer.stderr).strip()[:500]}",
            fix="check that the Java that JAVA_HOME or PATH names is a complete runtime",
        )


_ITERATIONS = 4096


def new_cluster_id() -> str:
    """A random cluster id: 16 bytes in URL-safe Base64 without padding, as Kafka writes them."""
    # Kafka refuses an id that starts with a dash in its own command lines, so the first bits are fixed
    raw = b"e" + bytes.fromhex(new_token())[:15]
    return base64.urlsafe_b64encode(raw).decode("ascii").rstrip("=")


def read_cluster_id(data: Path) -> str:
    """
    Cluster id of formatted storage; empty when ``data`` is not formatted.

    Args:
        data: A folder of ``log.dirs``.
    """
    meta = data / "meta.properties"
    if not meta.is_file():
        return ""
    rows = dict(line.split("=", 1) for line in meta.read_text("utf-8").splitlines() if "=" in line)
    return rows.get("cluster.id", "")


def scram_argument(user: str, password: str, salt: bytes) -> str:
    """
    The argument that makes StorageTool create a SCRAM-SHA-512 user.

    It holds the salted password (RFC 5802, ``Hi``), not the password: arguments of a process are public.
    """
    salted = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    encoded = [base64.b64encode(part).decode("ascii") for part in (salt, salted)]
    return f'SCRAM-SHA-512=[name={user},iterations={_ITERATIONS},salt="{encoded[0]}",saltedpassword="{encoded[1]}"]'


def format_storage(
    spec: ClusterSpec,
    class_path: str,
    property_files: list[Path],
    *,
    cluster_id: str,
    users: Mapping[str, str],
) -> None:
    """
    Format the storage of all brokers of a cluster, side by side.

    Args:
        spec: The cluster.
        class_path: Of Kafka.
        property_files: ``server.properties`` of each broker.
        cluster_id: As of `new_cluster_id`.
        users: SCRAM users and their passwords.

    Raises:
        MirrorError: StorageTool refused; its own words are in the message.
    """
    options = [part for name, level in spec.features.items() for part in ("--feature", f"{name}={level}")]
    for user, password in users.items():
        # the same salt on every broker: all of them must bring the same credential to the first quorum
        salt = hashlib.sha256(f"{cluster_id}/{user}".encode()).digest()
        options += ["--add-scram", scram_argument(user, password, salt)]
    jvm = [str(find_java()), "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]
    jvm += archive_arguments(*kafka_archive(spec.kafka_version, class_path))
    tool = [
        *jvm,
        "-cp",
        class_path,
        "kafka.tools.StorageTool",
        "format",
        "--cluster-id",
        cluster_id,
        *options,
    ]
    children = [
        subprocess.Popen(
            [*tool, "--config", str(file)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for file in property_files
    ]
    said = [child.communicate()[0] for child in children]
    for child, text in zip(children, said, strict=True):
        if child.returncode != 0:
            raise MirrorError(
                f"cluster {spec.name}: the storage could not be formatted: {_without_stack(text)}",
                fix="check the properties and features that were given for this cluster, and its data folder",
            )


def _without_stack(text: str) -> str:
    """Returns the output of a Java program without its stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith("\tat ")]
    return "\n  ".join(lines[-4:])[:800]

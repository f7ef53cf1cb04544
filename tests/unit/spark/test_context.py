"""Settings of the Spark context, decided without starting one."""

from __future__ import annotations

import subprocess
import sys

import pytest
import structlog

from eomirror.errors import ConfigError, UsageError
from eomirror.spark.context import (
    _with_found,
    channel_addresses,
    check_settings,
    engine_settings,
    replaced_settings,
    submitted_settings,
)
from eomirror.spark.transport import check_slots, check_transport, local_transport, slots


def settings(master: str | None = None, **given: str) -> dict[str, str]:
    """Settings with these ``--spark-conf``."""
    named = {name.replace("__", "."): value for name, value in given.items()}
    return engine_settings(master=master, configured={"spark.app.name": "file"}, given=named, version="1")


def test_a_local_master_with_slots_to_spare_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing chosen: local[256], lanes in FAIR pools, no retries and no copies by Spark."""
    monkeypatch.delenv("MASTER", raising=False)
    found = settings()
    assert found["spark.master"] == "local[256]"
    assert found["spark.scheduler.mode"] == "FAIR"
    assert found["spark.speculation"] == "false"
    assert found["spark.task.maxFailures"] == "1"
    assert found["spark.app.name"] == "file"


def test_what_the_user_says_wins_in_order() -> None:
    """--master over --spark-conf over the file; Java options are added to ours, not lost."""
    found = settings("spark://h:7077", spark__master="local[3]", spark__driver__extraJavaOptions="-Dx=y")
    assert found["spark.master"] == "spark://h:7077"
    assert "log4j2" in found["spark.driver.extraJavaOptions"]
    assert found["spark.driver.extraJavaOptions"].endswith("-Dx=y")
    assert "spark.driver.memory" not in found


def test_only_the_workers_of_a_local_master_come_from_a_daemon_of_ours() -> None:
    """On other machines eomirror may arrive with the task, after the daemon has started; what the user says wins."""
    name = "spark.python.daemon.module"
    assert settings("local[4]")[name] == "eomirror.spark.pyspark_daemon"
    assert name not in settings("spark://h:7077")
    assert settings("local[4]", spark__python__daemon__module="mine")[name] == "mine"


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        ({"spark.speculation": "true"}, "speculation"),
        (
            {"spark.python.worker.idleTimeoutSeconds": "60", "spark.python.worker.killOnIdleTimeout": "true"},
            "killOnIdleTimeout",
        ),
    ],
)
def test_settings_that_break_lanes_are_refused(bad: dict[str, str], word: str) -> None:
    """The message names the setting and says what to do."""
    with pytest.raises(UsageError, match=word) as caught:
        check_settings(bad)
    assert caught.value.fix


def test_an_idle_timeout_that_kills_nothing_is_allowed() -> None:
    """Only both settings together kill."""
    check_settings({"spark.python.worker.idleTimeoutSeconds": "60"})
    check_settings({"spark.python.worker.killOnIdleTimeout": "true"})


_SAFE = {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}


@pytest.mark.parametrize("master", ["spark://h:7077", "yarn", "k8s://https://h", "local-cluster[2,1,1024]"])
@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, ["spark.authenticate", "spark.network.crypto.enabled"]),
        ({"spark.authenticate": "true"}, ["spark.network.crypto.enabled"]),
        ({"spark.ssl.rpc.enabled": "true"}, ["spark.authenticate"]),
        ({**_SAFE, "spark.authenticate": "no"}, ["spark.authenticate"]),
    ],
)
def test_a_cluster_whose_connections_are_open_is_refused(
    master: str, given: dict[str, str], named: list[str]
) -> None:
    """Each setting that is missing is named, with what to set; the command ends with 78."""
    with pytest.raises(ConfigError) as caught:
        check_transport(given, master)
    assert [fault.path for fault in caught.value.faults] == named
    assert all(f"set {fault.path}=true" in fault.fix for fault in caught.value.faults)
    assert caught.value.exit_code == 78


def test_connections_that_are_closed_or_stay_on_this_machine_are_taken() -> None:
    """AES or TLS, with authentication; a local master needs no encryption."""
    check_transport(_SAFE, "spark://h:7077")
    check_transport({"spark.authenticate": "True ", "spark.ssl.rpc.enabled": "true"}, "yarn")
    for master in ("local", "local[*]", "local[4]", "local[4, 2]"):
        check_transport({"spark.authenticate": "true"}, master)
        assert local_transport(master) == {"spark.authenticate": "true"}
    assert local_transport("local-cluster[2,1,1024]") == local_transport("yarn") == local_transport("") == {}


@pytest.mark.parametrize("master", ["local", "local[*]", "local[4]", "local[4, 2]"])
def test_a_local_master_that_any_user_can_ask_is_refused(master: str) -> None:
    """It listens on the loopback interface; the fix needs no secret."""
    for given in ({}, {"spark.authenticate": "false"}, {"spark.network.crypto.enabled": "true"}):
        with pytest.raises(ConfigError) as caught:
            check_transport(given, master)
        (fault,) = caught.value.faults
        assert (fault.path, "Spark makes the secret itself" in fault.fix) == ("spark.authenticate", True)


@pytest.mark.parametrize(
    ("own", "found", "expected"),
    [
        ({}, {}, "true"),
        ({}, {"spark.authenticate": "false"}, "true"),
        ({}, {"spark.master": "spark://h:1"}, None),
        ({"spark.authenticate": "true"}, {"spark.master": "spark://h:1"}, "true"),
        ({"spark.authenticate": "false"}, {}, "false"),
    ],
)
@pytest.mark.parametrize("submitted", [True, False])
def test_a_local_master_is_authenticated_unless_the_configuration_says_otherwise(
    own: dict[str, str],
    found: dict[str, str],
    expected: str | None,
    *,
    submitted: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What spark-submit or spark-defaults.conf says is replaced, with a warning; what we are told is checked later."""
    if submitted:
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    else:
        monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    made = settings(found.get("spark.master") if not submitted else None, **own)
    with structlog.testing.capture_logs() as logs:
        chosen = _with_found(made, found)
    assert chosen.get("spark.authenticate") == expected
    warned = [line["setting"] for line in logs if line["event"] == "spark_setting_replaced"]
    assert warned == (["spark.authenticate"] if submitted and "spark.authenticate" in found else [])


@pytest.mark.parametrize(("master", "fits"), [("local", 1), ("local[4]", 4), ("local[4,2]", 4)])
def test_lanes_must_fit_into_a_local_master(master: str, fits: int) -> None:
    """A lane holds its slot, so one too many would never run."""
    check_slots(master, fits)
    with pytest.raises(UsageError, match="slots"):
        check_slots(master, fits + 1)
    check_slots("spark://h:1", 1000)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({"spark.master": "local[256]"}, 8),
        ({"spark.master": "local[*]"}, 8),
        ({"spark.master": "local[3]"}, 3),
        ({"spark.master": "local"}, 1),
        ({"spark.master": "spark://h:1", "spark.cores.max": "12"}, 12),
        ({"spark.master": "spark://h:1", "spark.cores.max": "12", "spark.task.cpus": "2"}, 6),
        ({"spark.master": "yarn", "spark.executor.instances": "5", "spark.executor.cores": "4"}, 20),
        ({"spark.master": "k8s://x", "spark.executor.instances": "5"}, 5),
        ({"spark.master": "spark://h:1"}, None),
    ],
)
def test_a_backfill_has_a_lane_for_each_slot(
    monkeypatch: pytest.MonkeyPatch, found: dict[str, str], expected: int | None
) -> None:
    """Slots of a local master beyond the CPUs help nothing; the settings of a cluster may not tell."""
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert slots(found) == expected


def test_the_channel_is_on_loopback_unless_workers_are_elsewhere() -> None:
    """A local master opens nothing to the network; a cluster uses the driver's own addresses and port."""
    assert channel_addresses({"spark.driver.host": "10.0.0.1"}, "local[2]") == ("127.0.0.1", "127.0.0.1", 0)
    cluster = {
        "spark.driver.host": "host",
        "spark.driver.bindAddress": "0.0.0.0",  # noqa: S104  what a container says
        "spark.eomirror.channel.port": "7070",
    }
    assert channel_addresses(cluster, "k8s://x") == ("0.0.0.0", "host", 7070)  # noqa: S104  as above


def test_spark_submit_keeps_its_master_and_reaches_the_driver() -> None:
    """A driver on the loopback interface, the default of a local master, is not found by a worker elsewhere."""
    cluster = {"spark.master": "spark://host:7077", "spark.app.name": "submit.py"}
    added = submitted_settings(settings(), cluster)
    assert "spark.master" not in added
    assert not {name for name in added if name.startswith("spark.driver.") and "JavaOptions" not in name}
    assert "spark.python.daemon.module" not in added
    assert added["spark.task.maxFailures"] == "1"
    assert added["spark.eomirror.channel.port"] == "0"


def test_spark_submit_wins_over_defaults_and_the_configuration_over_it() -> None:
    """A port or host of ``--conf`` stays; a setting of the file replaces it; safety is not a default."""
    found = {
        "spark.master": "yarn", "spark.eomirror.channel.port": "7000", "spark.driver.host": "10.0.0.5",
        "spark.ui.enabled": "true", "spark.task.maxFailures": "4",
    }  # fmt: skip
    added = submitted_settings(settings(), found)
    assert not {"spark.eomirror.channel.port", "spark.driver.host", "spark.ui.enabled"} & added.keys()
    assert added["spark.task.maxFailures"] == "1"
    own = settings(spark__driver__host="10.0.0.9", spark__eomirror__channel__port="7001")
    added = submitted_settings(own, found)
    assert (added["spark.driver.host"], added["spark.eomirror.channel.port"]) == ("10.0.0.9", "7001")


def test_settings_of_spark_submit_that_are_replaced_are_told() -> None:
    """Speculation, which the mirror turns off, and what the configuration says otherwise; not what it leaves alone."""
    found = {
        "spark.master": "yarn", "spark.app.name": "submit.py", "spark.speculation": "true", "spark.ui.enabled": "true",
        "spark.python.worker.reuse": "TRUE", "spark.executor.memory": "2g", "spark.driver.extraJavaOptions": "-Xss1m",
        "spark.eomirror.channel.port": "7000",
    }  # fmt: skip
    added = submitted_settings(settings(spark__eomirror__channel__port="7001"), found)
    assert added["spark.speculation"] == "false"
    assert replaced_settings(added, found) == ["spark.eomirror.channel.port", "spark.speculation"]


def test_spark_submit_without_a_master_is_local() -> None:
    """Its ``local[*]`` has as many slots as cores, and each lane holds one."""
    added = submitted_settings(settings(), {"spark.master": "local[*]"})
    assert added["spark.master"] == "local[256]"
    assert added["spark.driver.host"] == "127.0.0.1"
    kept = submitted_settings(settings(), {"spark.master": "local[4]", "spark.driver.memory": "2g"})
    assert "spark.master" not in kept
    assert "spark.driver.memory" not in kept
    assert kept["spark.driver.bindAddress"] == "127.0.0.1"


def test_no_call_of_the_jvm_imports_pyarrow_before_numpy_is_there() -> None:
    code = (
        "import sys; from eomirror.spark.context import _ask_late_for_numpy; _ask_late_for_numpy();"
        "from py4j.protocol import INPUT_CONVERTER; assert not any([c.can_convert('x') for c in INPUT_CONVERTER]);"
        "assert not {'pyspark.testing', 'numpy', 'pyarrow'} & sys.modules.keys();"
        "sys.modules['numpy'] = None; INPUT_CONVERTER[-1].can_convert('x'); assert 'pyspark.testing' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

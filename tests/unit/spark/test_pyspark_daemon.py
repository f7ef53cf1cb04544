"""The module path of PySpark's daemon."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.spark.pyspark_daemon import without_archives

if TYPE_CHECKING:
    from pathlib import Path


def test_archives_of_the_installed_package_leave_the_path(tmp_path: Path) -> None:
    """All of them, so that what is installed beside is imported, with its bytecode; the rest stays in order."""
    (tmp_path / "py4j").mkdir()
    lib = tmp_path / "pyspark" / "python" / "lib"
    archives = [
        f"{lib}/pyspark.zip",
        f"{lib}/py4j-0.10.9.9-src.zip",
        f"{tmp_path}/pyspark/jars/spark-core.jar",
    ]
    path = ["/mine", *archives, "/usr/lib/python3", str(tmp_path)]
    assert without_archives(path) == ["/mine", "/usr/lib/python3", str(tmp_path)]


def test_archives_of_another_spark_stay(tmp_path: Path) -> None:
    """Of a Spark that is not installed as a package, or whose py4j is not: nothing else has these modules."""
    lib = tmp_path / "pyspark" / "python" / "lib"
    spark = [f"{lib}/pyspark.zip", f"{lib}/py4j-0.10.9.9-src.zip", "/usr/lib/python3"]
    assert without_archives(spark) == spark
    assert without_archives([*spark, str(tmp_path)]) == [*spark, str(tmp_path)]

"""Columns of a sink: names and types of Spark's Kafka connector, and ``timestamp``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror.dataframe.partition_writer import SOURCE_COLUMNS
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from eomirror.dataframe.settings import SinkSettings

__all__ = ["check_schema", "checked_rows"]

_TYPES = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("array<struct<key:string,value:binary>>",),
}


def check_schema(schema: Any, settings: SinkSettings) -> None:
    """
    Checks the columns of rows.

    Raises:
        UsageError: One is missing, or has a type without a meaning.
    """
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    given = {name.lower(): name for name in types}
    if "value" not in given:
        raise UsageError(
            f"sink {settings.name}: the DataFrame has no column value",
            fix='select(to_json(struct("*")).alias("value"))',
        )
    if settings.topic is None and "topic" not in given:
        raise UsageError(
            f"sink {settings.name}: neither an option nor a column names the topic",
            fix="set the option topic, or add a column topic",
        )
    for name, allowed in _TYPES.items():
        found = types[given[name]] if name in given else "void"
        if found != "void" and found not in allowed:
            raise UsageError(
                f"sink {settings.name}: column {name} is {found}, not {' or '.join(allowed)}",
                fix=f'cast it: col("{given[name]}").cast("{allowed[0]}")',
            )
    for name in settings.source_columns:
        if name not in types:
            raise UsageError(
                f"sink {settings.name}: the DataFrame has no column {name}, which sourceColumns names",
                fix="select it from the source, such as col('offset').alias('source_offset')",
            )


def checked_rows(df: Any, settings: SinkSettings) -> Any:
    """
    Returns the columns of a DataFrame that tasks need, under the names that they have there.

    Raises:
        UsageError: One is missing, or has a type without a meaning.
    """
    from pyspark.sql import functions as sql

    check_schema(df.schema, settings)
    chosen = []
    for field in df.schema.fields:
        name = field.name.lower()
        if name not in _TYPES or (name == "topic" and settings.topic is not None):
            continue
        column = sql.col(f"`{field.name}`")
        if field.dataType.simpleString() == "void":
            column = column.cast(_TYPES[name][0])
        chosen.append(column.alias(name))
    for name, ours, kind in zip(
        settings.source_columns, SOURCE_COLUMNS, ("string", "int", "bigint"), strict=False
    ):
        chosen.append(sql.col(f"`{name}`").cast(kind).alias(ours))
    return df.select(*chosen)

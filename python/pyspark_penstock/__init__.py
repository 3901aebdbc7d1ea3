"""Lets Spark find the data source "pipestream" by itself, without ``penstock.spark.register``.

Spark imports every top-level module whose name begins with ``pyspark_``, and takes its ``DefaultSource``. An exception
here would end the look-up of everybody's sources. So nothing of penstock is imported before a source is made.

Example:
    >>> from pyspark_penstock import DefaultSource
    >>> DefaultSource.name()
    'pipestream'
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Makes a ``penstock.spark.PipeStreamDataSource``."""

    def __new__(cls, options: "MutableMapping[str, str]") -> DataSource:  # type: ignore[misc]
        """Import the source, and make that one instead."""
        from penstock.spark import PipeStreamDataSource

        return PipeStreamDataSource(options)

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "pipestream"

"""Lets Spark find the data source "documents" by itself, without ``penstock.spark.register``.

Spark imports every top-level module whose name begins with ``pyspark_``, and takes its ``DefaultSource``. An exception
here would end the look-up of everybody's sources. So nothing of penstock is imported before a source is made.

Example:
    >>> from pyspark_penstock_documents import DefaultSource
    >>> DefaultSource.name()
    'documents'
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Makes a ``penstock.spark.DocumentsSource``."""

    def __new__(cls, options: "MutableMapping[str, str]") -> DataSource:  # type: ignore[misc]
        """Import the source, and make that one instead."""
        from penstock.spark import DocumentsSource

        return DocumentsSource(options)

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "documents"

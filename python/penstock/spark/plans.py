"""Plans for splitting the documents of a DataFrame: one task for each document, or many tasks for a large one."""

from typing import TYPE_CHECKING, Literal

from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from penstock.errors import SparkError
from penstock.spark._apart import SendApart
from penstock.spark._divide import CARRIED, TASK_SCHEMA, Divide
from penstock.spark._gather import Gather
from penstock.spark._placed import NOTED_SPARK_SCHEMA
from penstock.spark._sizes import Sizes
from penstock.spark.functions import Dehydrate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["Plan", "ingest"]

Plan = Literal["auto", "task", "shuffle", "peel"]
"""A plan of :func:`ingest`."""

_PEEL_BYTES = 256 << 20
_GROUP_BYTES = {"peel": 32 << 20, "shuffle": 1 << 20}


def ingest(
    documents: "DataFrame",
    dehydrate: Dehydrate,
    *,
    plan: Plan = "auto",
    peel_bytes: int = _PEEL_BYTES,
    group_bytes: int | None = None,
    partitions: int | None = None,
) -> "DataFrame":
    """Split the documents named by the rows of ``documents`` and return the rows of their parts.

    ============= ====================================================================================================
    ``"task"``    one task for each document: ``documents.mapInArrow(dehydrate, dehydrate.schema)``
    ``"peel"``    documents of ``peel_bytes`` and more are peeled: the children of the container, or of the single
                  container inside it (``a.tar.gz``), are sent by many tasks, in groups of about ``group_bytes``;
                  smaller documents are sent by one task
    ``"shuffle"`` the same for documents of every size, in groups of about 1 MiB
    ``"auto"``    "peel" for documents of ``peel_bytes`` and more, "task" for all others; with ``privacy`` or `redeem`
                  "task" for all
    ============= ====================================================================================================

    The shuffle carries the positions of parts but never their bytes: each task opens the document again. Apart from
    sessions and IDs, receipts are the same with every plan; see the page on receipts. Zip, tar, mbox, and compressed
    streams of these are divided; every other document is sent by one task. Only "auto" runs a job immediately: it
    reads the sizes, from the column ``length`` if there is one. If executors may be lost, set
    ``spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch`` to false; see the page on clusters.

    Args:
        documents: Rows with a column ``path``, as returned by ``spark.read.format("documents")``.
        dehydrate: The result of `penstock.spark.dehydrate`, with the sink, receipts and limits.
        plan: The plan, one of the table above.
        peel_bytes: The size, in bytes, from which a document is sent by many tasks; 256 MiB by default.
        group_bytes: How many bytes the children of a group should have in total; 32 MiB by default, 1 MiB for
            "shuffle".
        partitions: The number of tasks over which groups are spread; by default ``spark.sql.shuffle.partitions``.

    Returns:
        Rows with the columns of ``dehydrate.schema``, which is `PART_SCHEMA` unless there is a policy or `redeem`.

    Raises:
        SparkError: An option is invalid.

    Example:
        >>> from penstock.spark import dehydrate, ingest
        >>> take_apart = dehydrate("127.0.0.1:4433", fingerprint="ab" * 32, receipts="/data/receipts")
        >>> parts = ingest(documents, take_apart, peel_bytes=1 << 30)  # doctest: +SKIP
    """
    if plan not in ("auto", "task", "shuffle", "peel"):
        raise SparkError(f"plan must be auto, task, shuffle or peel, not {plan!r}")
    for name, value in (("peel_bytes", peel_bytes), ("group_bytes", group_bytes), ("partitions", partitions)):
        if value is not None and value < 1:
            raise SparkError(f"{name} must be at least 1, not {value}")
    if "path" not in documents.columns:
        raise SparkError(f"ingest requires a column path; the columns are {', '.join(documents.columns)}")
    plan = _alone(plan) if dehydrate.privacy is not None or dehydrate.redeems else plan
    spark = documents.sparkSession
    spread = partitions or int(spark.conf.get("spark.sql.shuffle.partitions") or 200)
    group = group_bytes or _GROUP_BYTES.get(plan, _GROUP_BYTES["peel"])
    match plan:
        case "task":
            return documents.mapInArrow(dehydrate, dehydrate.schema)
        case "peel" | "shuffle":
            return _apart(documents, dehydrate, 0 if plan == "shuffle" else peel_bytes, group, spread)
        case "auto":
            return _auto(documents, dehydrate, peel_bytes, group, spread)


def _alone(plan: Plan) -> Plan:
    """Return the plan that sends all parts of a document in one session.

    Groups would reveal the structure of a document, and a group does not know which of its parts are to be redeemed.
    """
    if plan in ("auto", "task"):
        return "task"
    raise SparkError(f"plan {plan!r} sends documents in groups: with privacy or redeem, use plan task")


def _auto(documents: "DataFrame", dehydrate: Dehydrate, peel_bytes: int, group: int, spread: int) -> "DataFrame":
    from pyspark.sql.functions import broadcast, col

    named = _carried(documents)
    look = Sizes(to_arrow_schema(documents.select(*named).schema), dehydrate.storage)
    sizes = documents if "length" in documents.columns else documents.mapInArrow(look, look.schema)
    # The list is made once, so a document is in exactly one of the two plans even if it grows meanwhile.
    outsized = sizes.where(col("length") >= peel_bytes).select("path", *named).collect()
    if not outsized:
        return documents.mapInArrow(dehydrate, dehydrate.schema)
    large = documents.sparkSession.createDataFrame(outsized, documents.select("path", *named).schema)
    small = documents.join(broadcast(large.select("path").distinct()), "path", "left_anti")
    # peel_bytes is 0: every listed document is divided, even if it has become smaller since.
    return small.mapInArrow(dehydrate, dehydrate.schema).unionByName(_apart(large, dehydrate, 0, group, spread))


def _carried(documents: "DataFrame") -> list[str]:
    """Return the columns other than ``path`` that describe a document."""
    return [column for column in CARRIED if column in documents.columns]


def _apart(documents: "DataFrame", dehydrate: Dehydrate, peel_bytes: int, group: int, spread: int) -> "DataFrame":
    from pyspark.sql.functions import monotonically_increasing_id

    named = _carried(documents)
    numbered = documents.select("path", *named).withColumn("ordinal", monotonically_increasing_id())
    groups = numbered.mapInArrow(Divide(dehydrate, peel_bytes, group), from_arrow_schema(TASK_SCHEMA))
    spread_out = groups.repartitionById(spread, "slot").sortWithinPartitions("ordinal", "first")
    rows = spread_out.mapInArrow(SendApart(dehydrate), NOTED_SPARK_SCHEMA)
    gathered = rows.repartition(spread, "ordinal").sortWithinPartitions("ordinal", "place", "step")
    return gathered.mapInArrow(Gather(dehydrate), dehydrate.schema)

"""How the documents of a DataFrame are taken apart: each by one task, or large ones by many."""

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
    """Take the documents apart that the rows of ``documents`` name; give the rows of their parts, `PART_SCHEMA`.

    ============= ====================================================================================================
    ``"task"``    one task for each document: ``documents.mapInArrow(dehydrate, dehydrate.schema)``
    ``"peel"``    documents of ``peel_bytes`` and more are peeled: the children of the container, or of the one
                  container that lies alone in it (``a.tar.gz``), are sent by many tasks, in groups of about
                  ``group_bytes``; smaller documents are sent by one task
    ``"shuffle"`` the same for documents of every size, in groups of a MiB
    ``"auto"``    "task"; without ``privacy``, "peel" for documents of ``peel_bytes`` and more
    ============= ====================================================================================================

    The shuffle carries where parts lie, and never their bytes: each task opens the document again. Receipts say the
    same whatever the plan, but for sessions and IDs; see the page on receipts. Zip, tar, mbox, and compressed streams
    of these are divided; all else is sent by one task. Only "auto" computes something at once: the
    sizes, from the column ``length`` if there is one. Where executors may be lost, set
    ``spark.sql.shuffle.orderIndependentChecksum.enableFullRetryOnMismatch`` to false: see the page on clusters.

    Args:
        documents: Rows with a column ``path``, as ``spark.read.format("documents")`` gives them.
        dehydrate: What `penstock.spark.dehydrate` has made: the sink, receipts, limits.
        plan: Which plan.
        peel_bytes: From how many bytes on a document is outsized.
        group_bytes: How many bytes the children of a group should have together; 32 MiB, for "shuffle" 1 MiB.
        partitions: Into how many tasks groups are spread; by default ``spark.sql.shuffle.partitions``.

    Raises:
        SparkError: An option is wrong.

    Example:
        >>> from penstock.spark import dehydrate, ingest
        >>> take_apart = dehydrate("127.0.0.1:4433", fingerprint="ab" * 32, receipts="/data/receipts")
        >>> parts = ingest(documents, take_apart, peel_bytes=1 << 30)  # doctest: +SKIP
    """
    if plan not in ("auto", "task", "shuffle", "peel"):
        raise SparkError(f"plan is auto, task, shuffle or peel, not {plan!r}")
    for name, value in (("peel_bytes", peel_bytes), ("group_bytes", group_bytes), ("partitions", partitions)):
        if value is not None and value < 1:
            raise SparkError(f"{name} must be at least 1, not {value}")
    if "path" not in documents.columns:
        raise SparkError(f"ingest needs a column path; there are {', '.join(documents.columns)}")
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
    """Give the plan that sends a document's parts in one session.

    Groups would show what a document has, and a group does not know what of it is to be redeemed.
    """
    if plan in ("auto", "task"):
        return "task"
    raise SparkError(f"plan {plan!r} sends documents in groups: with privacy, or to redeem, take task")


def _auto(documents: "DataFrame", dehydrate: Dehydrate, peel_bytes: int, group: int, spread: int) -> "DataFrame":
    from pyspark.sql.functions import broadcast, col

    named = _carried(documents)
    look = Sizes(to_arrow_schema(documents.select(*named).schema), dehydrate.storage)
    sizes = documents if "length" in documents.columns else documents.mapInArrow(look, look.schema)
    # The list is made once, so a document is in one of the two plans even if it grows meanwhile.
    outsized = sizes.where(col("length") >= peel_bytes).select("path", *named).collect()
    if not outsized:
        return documents.mapInArrow(dehydrate, dehydrate.schema)
    large = documents.sparkSession.createDataFrame(outsized, documents.select("path", *named).schema)
    small = documents.join(broadcast(large.select("path").distinct()), "path", "left_anti")
    # Whatever was listed is divided: it was large enough then.
    return small.mapInArrow(dehydrate, dehydrate.schema).unionByName(_apart(large, dehydrate, 0, group, spread))


def _carried(documents: "DataFrame") -> list[str]:
    """Name the columns beside ``path`` that say something of a document."""
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

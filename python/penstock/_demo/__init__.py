"""``penstock demo``: split real documents on local Spark, send them over QUIC to a sink, reassemble and verify them.

::

    fetch ─▶ folder of documents ─▶ pipeline (Spark: source, dehydrate, texts, rehydrate) ─▶ results, receipts
                                          │ QUIC                                          │
                                          ▼                                               ▼
                                     sink (a separate process) ───▶ sink folder ─▶ account ─▶ report, summary.json
"""

from penstock._demo.run import Outcome, run

__all__ = ["Outcome", "run"]

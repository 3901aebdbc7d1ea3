"""What ``penstock demo`` does: real documents through local Spark, over QUIC to a sink, put together and verified.

::

    fetch ─▶ folder of documents ─▶ pipeline (Spark: source, dehydrate, texts, rehydrate) ─▶ results, receipts
                                          │ QUIC                                          │
                                          ▼                                               ▼
                                     sink (a process of its own) ─▶ sink folder ─▶ account ─▶ report, summary.json
"""

from penstock._demo.run import Outcome, run

__all__ = ["Outcome", "run"]

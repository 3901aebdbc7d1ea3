//! Documents and rows of Arrow on their way into a PipeStream session. The sources are still modules of `penstock-py`.

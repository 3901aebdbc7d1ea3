//! The phase of a sender, from its first chunk to its last.

use crate::Error;

/// The phase of a sender. Each arrow is a method.
///
/// ```text
///         finish             final_chunk_written
///  Open ─────────▶ Whole ─────────────────────────▶ Finished
///    │               │                                 ▲
///    └───────────────┴──▶ Failing ─────────────────────┘
///            fail         │ ▲   final_chunk_written
///                         └─┘ fail, move_behind (once)
///
///  Open, Whole, Failing ── break_with ──▶ Broken
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// More of the payload may come.
    Open,
    /// The payload has ended: its last chunk is the final one.
    Whole,
    /// The payload will never be complete: the final chunk, which is still to be written, tells the consumer why.
    Failing {
        /// The reason that the consumer reads.
        why: String,
        /// The error that the caller gets once the final chunk is written; `None` if the caller failed the job.
        error: Option<Error>,
        /// Whether the final chunk was moved after another writer's chunks.
        moved: bool,
    },
    /// The final chunk is written. The error is the reason why the job failed, unless the caller failed it.
    Finished(Option<Error>),
    /// Nothing more can be written, not even the final chunk.
    Broken(Error),
}

impl Phase {
    pub(super) const fn is_open(&self) -> bool {
        match self {
            Self::Open => true,
            Self::Whole | Self::Failing { .. } | Self::Finished(_) | Self::Broken(_) => false,
        }
    }

    /// Return whether nothing more will be written.
    pub(super) const fn is_over(&self) -> bool {
        match self {
            Self::Open | Self::Whole | Self::Failing { .. } => false,
            Self::Finished(_) | Self::Broken(_) => true,
        }
    }

    /// Return the error that the caller gets, or has got, for the end of the job.
    pub(super) const fn error(&self) -> Option<&Error> {
        match self {
            Self::Open | Self::Whole => None,
            Self::Failing { error, .. } | Self::Finished(error) => error.as_ref(),
            Self::Broken(error) => Some(error),
        }
    }

    /// End the payload.
    pub(super) fn finish(&mut self) {
        match self {
            Self::Open => *self = Self::Whole,
            Self::Whole | Self::Failing { .. } | Self::Finished(_) | Self::Broken(_) => {}
        }
    }

    /// Fail the job for this reason, which replaces an earlier one. The final chunk keeps its index.
    pub(super) fn fail(&mut self, why: String, error: Option<Error>) {
        let moved = match self {
            Self::Open | Self::Whole => false,
            Self::Failing { moved, .. } => *moved,
            Self::Finished(_) | Self::Broken(_) => return,
        };
        *self = Self::Failing { why, error, moved };
    }

    /// Return whether the final chunk may still be moved after another writer's chunks, which happens once.
    pub(super) const fn may_move(&self) -> bool {
        match self {
            Self::Open | Self::Whole => true,
            Self::Failing { moved, .. } => !*moved,
            Self::Finished(_) | Self::Broken(_) => false,
        }
    }

    /// Move the final chunk after another writer's chunks. Only the final chunk of a failing job is moved.
    pub(super) const fn move_behind(&mut self) {
        match self {
            Self::Failing { moved, .. } => *moved = true,
            Self::Open | Self::Whole | Self::Finished(_) | Self::Broken(_) => {}
        }
    }

    /// Record that the buffer has the final chunk. This changes nothing in a phase without one.
    pub(super) fn final_chunk_written(&mut self) {
        match self {
            Self::Whole => *self = Self::Finished(None),
            Self::Failing { error, .. } => *self = Self::Finished(error.take()),
            Self::Open | Self::Finished(_) | Self::Broken(_) => {}
        }
    }

    /// Record that nothing more can be written. A finished job stays finished.
    pub(super) fn break_with(&mut self, error: Error) {
        match self {
            Self::Open | Self::Whole | Self::Failing { .. } => *self = Self::Broken(error),
            Self::Finished(_) | Self::Broken(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Conflict, Failure, Stalled};

    fn failing(error: Option<Error>, moved: bool) -> Phase {
        Phase::Failing { why: "why".to_owned(), error, moved }
    }

    #[test]
    fn a_payload_becomes_whole_and_its_final_chunk_ends_the_job() {
        let mut phase = Phase::Open;
        phase.final_chunk_written();
        assert_eq!(phase, Phase::Open, "an open job has no final chunk");
        phase.move_behind();
        assert!(phase.is_open() && phase.may_move(), "a job that does not fail is not moved");
        phase.finish();
        assert!(phase == Phase::Whole && !phase.is_open() && !phase.is_over());
        phase.move_behind();
        assert_eq!(phase, Phase::Whole);
        phase.final_chunk_written();
        assert!(phase == Phase::Finished(None) && phase.is_over());
    }

    #[test]
    fn a_job_that_fails_keeps_its_last_reason_and_moves_once() {
        let too_large = Error::of_response("chunk 1", 413, b"");
        let conflict = Error::from(Conflict::Writer { index: 1 });
        for mut phase in [Phase::Open, Phase::Whole] {
            phase.fail("first".to_owned(), None);
            assert!(phase.error().is_none(), "the caller knows why");
            phase.fail("why".to_owned(), Some(too_large.clone()));
            assert_eq!(phase, failing(Some(too_large.clone()), false));
            assert!(phase.may_move());
            phase.move_behind();
            assert!(!phase.may_move());
            phase.fail("why".to_owned(), Some(conflict.clone()));
            assert_eq!(phase, failing(Some(conflict.clone()), true), "its place is behind the other writer's chunks");
            phase.finish();
            assert_eq!(phase, failing(Some(conflict.clone()), true), "a job that fails never becomes whole");
            phase.final_chunk_written();
            assert_eq!(phase, Phase::Finished(Some(conflict.clone())));
        }
    }

    #[test]
    fn nothing_changes_a_job_that_is_over() {
        let timeout = std::time::Duration::from_secs(30);
        let stalled = Error::from(Stalled::Write { index: 1, timeout, failure: Failure::Status(503) });
        for (mut phase, over) in [
            (Phase::Open, Phase::Broken(stalled.clone())),
            (Phase::Whole, Phase::Broken(stalled.clone())),
            (failing(None, true), Phase::Broken(stalled.clone())),
            (Phase::Finished(None), Phase::Finished(None)),
        ] {
            phase.break_with(stalled.clone());
            assert_eq!(phase, over);
            phase.break_with(Error::Expired { ttl: 1 });
            phase.fail("late".to_owned(), None);
            phase.finish();
            phase.move_behind();
            phase.final_chunk_written();
            assert!(phase == over && phase.is_over() && !phase.may_move());
        }
    }
}

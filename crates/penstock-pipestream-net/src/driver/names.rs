use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use penstock_io::sync::lock;
use penstock_pipestream::SessionId;

/// The names of an end's open sessions. A name belongs to one session: the session's yield tokens and its place in a
/// sink are bound to it, and a client that knows it can continue that session.
#[derive(Debug, Default)]
pub(crate) struct Names(Mutex<HashSet<SessionId>>);

/// Reservation of a name, until it is dropped.
#[derive(Debug)]
pub(super) struct NameGuard {
    names: Arc<Names>,
    name: SessionId,
    term: Term,
}

/// How long a name is reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Term {
    /// Until the guard is dropped.
    Guard,
    /// Until the client or server is dropped.
    End,
}

impl NameGuard {
    /// Keep the name from all later sessions of this end.
    pub(super) fn keep(mut self) {
        self.term = Term::End;
    }
}

impl Names {
    /// Take a name, unless another session has it.
    fn take(self: &Arc<Self>, name: SessionId) -> Option<NameGuard> {
        lock(&self.0).insert(name).then(|| NameGuard { names: Arc::clone(self), name, term: Term::Guard })
    }
}

impl Drop for NameGuard {
    fn drop(&mut self) {
        match self.term {
            Term::Guard => {
                lock(&self.names.0).remove(&self.name);
            }
            Term::End => {}
        }
    }
}

/// Name of a session at layer 2, at this end.
#[derive(Debug)]
pub(super) struct SessionName {
    /// A client's name for the session, where it offers layer 2.
    pub(super) own: Option<SessionId>,
    /// The names of all sessions of the server, including this one.
    pub(super) names: Arc<Names>,
    guard: Option<NameGuard>,
}

impl SessionName {
    pub(super) fn new(own: Option<SessionId>) -> Self {
        Self { own, names: Arc::default(), guard: None }
    }

    /// Release the session's name to a caller that outlives the session.
    pub(super) fn release(&mut self) -> Option<NameGuard> {
        self.guard.take()
    }

    /// Take a name for the session; `false` where another session has it.
    pub(super) fn take(&mut self, name: SessionId) -> bool {
        self.guard = self.names.take(name);
        self.guard.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_free_when_it_is_dropped_and_never_again_when_it_is_kept() {
        let (names, name) = (Arc::new(Names::default()), SessionId::new([7; 16]));
        let first = names.take(name).unwrap();
        assert!(names.take(name).is_none());
        drop(first);
        names.take(name).unwrap().keep();
        assert!(names.take(name).is_none());
    }
}

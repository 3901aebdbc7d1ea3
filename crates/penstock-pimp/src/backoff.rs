use std::time::Duration;

/// An interval that doubles up to a maximum until it is reset (section 9).
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    first: Duration,
    most: Duration,
    next: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, most: Duration) -> Self {
        Self { first, most, next: first.min(most) }
    }

    /// How long to wait now; twice as long the next time.
    pub(crate) fn advance(&mut self) -> Duration {
        let now = self.next;
        self.next = self.next.saturating_mul(2).min(self.most);
        now
    }

    pub(crate) fn reset(&mut self) {
        self.next = self.first.min(self.most);
    }
}

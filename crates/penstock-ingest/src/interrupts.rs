use penstock_io::runtime::Interrupted;

/// What ends a long run from outside: Ctrl-C, or another thread that wants no more of it.
///
/// Whoever lends them keeps the reason; this crate only stops.
pub trait Interrupts: Send + Sync {
    /// Return whether the run must end now. It is asked before each part of a document, so it must be cheap.
    fn pending(&self) -> bool;

    /// Look for signals, for [`penstock_io::runtime::wait`], which asks about every 100 ms.
    ///
    /// # Errors
    ///
    /// [`Interrupted`] where the wait must end.
    fn check(&self) -> Result<(), Interrupted>;
}

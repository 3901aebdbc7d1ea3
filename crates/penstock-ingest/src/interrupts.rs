use penstock_io::runtime::Interrupted;

/// Ends a long run from outside: Ctrl-C, or another thread that cancels it.
///
/// The caller that passes them in keeps the reason; this crate only stops.
pub trait Interrupts: Send + Sync {
    /// Return whether the run must end now. Called before each part of a document, so it must be cheap.
    fn pending(&self) -> bool;

    /// Check for signals, for [`penstock_io::runtime::wait`], which calls this about every 100 ms.
    ///
    /// # Errors
    ///
    /// [`Interrupted`] where the wait must end.
    fn check(&self) -> Result<(), Interrupted>;
}

use penstock_io::runtime::Interrupted;

/// A source of interrupts that end a long run: Ctrl-C, or another thread that cancels it.
///
/// The caller that supplies it knows the reason; this crate only stops.
pub trait Interrupts: Send + Sync {
    /// Return whether the run must end now. Called before each part of a document, so it must be cheap.
    fn pending(&self) -> bool;

    /// Check for signals, for [`penstock_io::runtime::wait`], which calls this about every 100 ms.
    ///
    /// # Errors
    ///
    /// [`Interrupted`] if the wait must end.
    fn check(&self) -> Result<(), Interrupted>;
}

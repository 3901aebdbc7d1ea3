use std::fmt;

/// A named limit, checked before memory is allocated: the protocol's, a negotiated one or the operator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The name of the limited value, as the user who may change the limit knows it.
    pub name: &'static str,
    /// The largest value allowed.
    pub value: u64,
}

impl Limit {
    /// Make a limit of `value` on `name`.
    pub const fn new(name: &'static str, value: u64) -> Self {
        Self { name, value }
    }

    /// Reject a value above the limit.
    pub const fn check(&self, actual: u64) -> Result<(), LimitExceeded> {
        if actual > self.value {
            return Err(LimitExceeded { name: self.name, limit: self.value, actual });
        }
        Ok(())
    }
}

/// The error for a value above its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LimitExceeded {
    /// The name of the limited value.
    pub name: &'static str,
    /// The largest value allowed.
    pub limit: u64,
    /// The value that was rejected.
    pub actual: u64,
}

impl fmt::Display for LimitExceeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}, above the limit of {}", self.name, self.actual, self.limit)
    }
}

impl std::error::Error for LimitExceeded {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_inclusive_and_its_error_names_field_limit_and_actual() {
        let limit = Limit::new("window", 8);
        assert_eq!(limit.check(8), Ok(()));
        let error = limit.check(9).expect_err("above");
        assert_eq!((error.name, error.limit, error.actual), ("window", 8, 9));
        assert_eq!(error.to_string(), "window is 9, above the limit of 8");
    }
}

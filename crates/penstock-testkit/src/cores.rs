//! Division of thousands of checks among the cores, because otherwise a test binary waits for a single thread.

use std::iter::StepBy;
use std::num::NonZero;
use std::ops::Range;
use std::thread;

/// Divide the numbers below `count`: `work` runs once on each of the n cores, with every n-th number.
pub fn divide(count: usize, work: impl Fn(StepBy<Range<usize>>) + Sync) {
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        for first in 0..cores {
            let work = &work;
            scope.spawn(move || work((first..count).step_by(cores)));
        }
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_number_is_checked_once() {
        for count in [0, 1, 100] {
            let seen = Mutex::new(Vec::new());
            divide(count, |numbers| seen.lock().expect("nothing panics").extend(numbers));
            let seen = seen.into_inner().expect("nothing panics");
            assert_eq!((seen.len(), BTreeSet::from_iter(seen)), (count, BTreeSet::from_iter(0..count)));
        }
    }

    #[test]
    #[should_panic(expected = "a scoped thread panicked")]
    fn a_check_that_fails_fails_its_test() {
        divide(100, |numbers| numbers.for_each(|number| assert_ne!(number, 57)));
    }
}

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use arrow_array::{ArrayRef, Float64Array};
use arrow_schema::{DataType, Field, Schema};
use penstock_io::sync::lock;
use penstock_vgi::{Limits, Log, Metadata};

use super::super::{FetchOptions, Fetcher};
use super::*;
use crate::port::ApplicationError;

pub(crate) fn values() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("value", DataType::Float64, false)]))
}

pub(crate) fn batch(numbers: &[f64]) -> Batch {
    let column: ArrayRef = Arc::new(Float64Array::from(numbers.to_vec()));
    Batch::new(values(), vec![column], numbers.len())
}

/// Return a policy that fetches files below a folder.
pub(crate) fn fetching(folder: &Path) -> External {
    let options = FetchOptions {
        parallel_threshold: 1 << 20,
        chunk_size: 1 << 20,
        max_parallel: 1,
        timeout: Duration::from_secs(30),
        max_bytes: 1 << 20,
        hedge_multiplier: 0.0,
        max_hedges: 0,
        allow_private: true,
        root: Some(folder.to_owned()),
    };
    let (fetcher, limits) = (Arc::new(Fetcher::new(options)), Limits::default());
    External::new(Resolver { fetcher, max_retries: 0, retry_delay: Duration::ZERO, limits })
}

/// Return a policy that stores batches of at least this many bytes in a folder, and fetches from
/// there.
pub(crate) fn storing(folder: &Path, threshold: u64) -> External {
    fetching(folder).with_storage(Box::new(Folder(folder.to_owned())), None).with_threshold(threshold)
}

/// Return how many batches are stored in a folder.
pub(crate) fn stored(folder: &Path) -> usize {
    std::fs::read_dir(folder).expect("a folder").count()
}

/// A storage that writes batches as files.
struct Folder(PathBuf);

impl BatchStorage for Folder {
    fn upload(&self, parcel: &Parcel, _: &SchemaRef) -> Result<String, PortError> {
        let path = self.0.join(stored(&self.0).to_string());
        std::fs::write(&path, &parcel.bytes).expect("written");
        Ok(format!("file://{}", path.display()))
    }
}

/// A storage and a validator that always fail in one way, and count their calls.
#[derive(Clone)]
pub(crate) struct Failing {
    error: PortError,
    asked: Arc<Mutex<usize>>,
}

impl Failing {
    fn new(error: PortError) -> Self {
        Self { error, asked: Arc::default() }
    }

    pub(crate) fn refusing() -> Self {
        Self::new(PortError::Failed(application("not this one")))
    }

    fn ask<T>(&self) -> Result<T, PortError> {
        *lock(&self.asked) += 1;
        Err(self.error.clone())
    }
}

impl BatchStorage for Failing {
    fn upload(&self, _: &Parcel, _: &SchemaRef) -> Result<String, PortError> {
        self.ask()
    }
}

impl LocationValidator for Failing {
    fn validate(&self, _: &str) -> Result<(), PortError> {
        self.ask()
    }
}

fn application(message: &str) -> ApplicationError {
    ApplicationError::new(io::Error::other(message.to_owned()))
}

fn is_from_the_application(error: &ApplicationError) -> bool {
    error.downcast_ref::<io::Error>().is_some()
}

fn go() -> Result<(), crate::Interrupted> {
    Ok(())
}

/// Return a pointer to a URL that the tests never request.
fn far() -> Batch {
    pointer(&values(), "https://store.example/1", None)
}

#[test]
fn a_stored_batch_comes_back_with_its_log_messages_where_they_are_wanted() {
    let folder = tempfile::tempdir().expect("a folder");
    let external = storing(folder.path(), 1);
    let log = Log::new("INFO", "hello", None);
    let logs = vec![Batch::empty(&values(), log.metadata("", ""))];
    let sent = external.store(logs, batch(&[1.0, 2.0])).expect("stored");
    assert_eq!((sent.rows, stored(folder.path())), (0, 1));
    let received = external.receive(sent.clone(), &mut go).expect("there");
    assert_eq!((received.logs, received.batch.expect("a batch").rows), (vec![log], 2));
    assert_eq!(external.fetch(sent, &mut go).expect("there").expect("a batch").rows, 2);
}

#[test]
fn a_batch_is_stored_from_the_threshold_on_and_only_with_rows() {
    let folder = tempfile::tempdir().expect("a folder");
    let one = batch(&[1.0]);
    let bytes = one.memory() as u64;
    assert!(storing(folder.path(), bytes).stores(&one));
    assert!(!storing(folder.path(), bytes + 1).stores(&one));
    assert!(!storing(folder.path(), 0).stores(&Batch::empty(&values(), Metadata::new())));
    assert!(!fetching(folder.path()).with_threshold(0).stores(&one), "there is no storage");
}

#[test]
fn any_other_batch_is_returned_as_it_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let (external, one) = (fetching(folder.path()), batch(&[1.0]));
    assert_eq!(external.fetch(one.clone(), &mut go).expect("here").expect("a batch").rows, 1);
    let received = external.receive(one, &mut go).expect("here");
    assert_eq!((received.logs.len(), received.batch.expect("a batch").rows), (0, 1));
}

#[test]
fn a_refused_location_is_a_failure_for_the_peer_and_an_error_for_the_caller() {
    let folder = tempfile::tempdir().expect("a folder");
    let external = fetching(folder.path()).with_validator(Box::new(Failing::refusing()));
    let failure = external.fetch(far(), &mut go).expect("the connection goes on").expect_err("refused");
    assert_eq!(
        (failure.error_type.as_str(), failure.message.as_str()),
        (FAILURE, "ExternalLocationError: not this one")
    );
    let error = external.receive(far(), &mut go).expect_err("refused");
    assert!(
        matches!(&error, Error::Unfetched(why) if matches!(&**why, Error::Refused(error) if is_from_the_application(error)))
    );
    assert_eq!(error.to_string(), "not this one");
}

#[test]
fn the_files_of_the_named_folder_are_allowed_without_the_validator() {
    let folder = tempfile::tempdir().expect("a folder");
    let validator = Failing::refusing();
    let external = storing(folder.path(), 1).with_validator(Box::new(validator.clone()));
    let sent = external.store(Vec::new(), batch(&[1.0])).expect("stored");
    assert_eq!(external.fetch(sent, &mut go).expect("here").expect("a batch").rows, 1);
    assert_eq!(*lock(&validator.asked), 0);
    // The fetcher refuses files outside the folder, and again the validator is not asked.
    let outside = pointer(&values(), "file:///etc/hostname", None);
    assert!(external.fetch(outside, &mut go).expect("the connection goes on").is_err());
    assert_eq!(*lock(&validator.asked), 0);
}

#[test]
fn an_application_that_ends_the_wait_gets_its_error_back_and_the_peer_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let raising = || Failing::new(PortError::Raised(application("interrupted")));
    let external = fetching(folder.path()).with_validator(Box::new(raising()));
    for error in [external.fetch(far(), &mut go).map(|_| ()), external.receive(far(), &mut go).map(|_| ())] {
        assert!(matches!(error, Err(Error::Raised(error)) if is_from_the_application(&error)));
    }
    let external = fetching(folder.path()).with_storage(Box::new(raising()), None).with_threshold(1);
    let error = external.store(Vec::new(), batch(&[1.0])).expect_err("interrupted");
    assert!(matches!(error, Error::Raised(error) if is_from_the_application(&error)));
}

#[test]
fn a_storage_that_fails_is_an_error_with_its_cause() {
    let folder = tempfile::tempdir().expect("a folder");
    let failing = Failing::new(PortError::Failed(application("it is full")));
    let external = fetching(folder.path()).with_storage(Box::new(failing), None).with_threshold(1);
    let error = external.store(Vec::new(), batch(&[1.0])).expect_err("failed");
    assert_eq!(error.to_string(), "a batch could not be stored: it is full");
    assert!(matches!(error, Error::Storage(error) if is_from_the_application(&error)));
}

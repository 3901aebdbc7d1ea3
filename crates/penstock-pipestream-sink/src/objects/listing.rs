use std::time::{Duration, SystemTime};

use futures_util::stream::{StreamExt as _, TryStreamExt as _};
use object_store::{ObjectMeta, Result};
use penstock_io::storage::ObjectPrefix;

/// Maximum number of objects that one call lists.
const MAX_LISTED: usize = 1_000;

/// Return some of the objects below a prefix, starting at a random position.
pub(super) async fn sample(place: &ObjectPrefix, prefix: &str) -> Result<Vec<ObjectMeta>> {
    let from = place.path(&format!("{prefix}/{:04x}", fastrand::u16(..)));
    place.store().list_with_offset(Some(&place.path(prefix)), &from).take(MAX_LISTED).try_collect().await
}

/// Return the time since the last write to an object.
pub(super) fn age(object: &ObjectMeta, now: SystemTime) -> Duration {
    now.duration_since(object.last_modified.into()).unwrap_or_default()
}

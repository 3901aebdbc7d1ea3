//! The record of a job, as stores keep it.

use serde::{Deserialize, Serialize};

use crate::job::{FinalChunk, Job, Storage};
use crate::{Digest, Indices};

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The fields of a record, with their names and in their order. Both must stay: earlier buffers wrote them, and a buffer
/// over Redis replaces a record only if the record is byte for byte what the job that was read encodes to.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredJob {
    write_key: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    write_until: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    tokens_until: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    deleted: bool,
    read_key: Option<Digest>,
    generation: u64,
    created_at: u64,
    ttl: u64,
    indices: Indices,
    #[serde(rename = "octets")]
    bytes: u64,
    done: Option<FinalChunk>,
    cancelled: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    lost: bool,
}

impl From<StoredJob> for Job {
    fn from(stored: StoredJob) -> Self {
        let storage = match (stored.deleted, stored.lost) {
            (false, false) => Storage::Intact,
            (false, true) => Storage::Lost,
            // No buffer wrote both: a lost job cannot be deleted, and a deleted one has nothing that can be lost.
            (true, _) => Storage::Deleted,
        };
        Self {
            write_key: stored.write_key,
            write_until: stored.write_until,
            tokens_until: stored.tokens_until,
            read_key: stored.read_key,
            generation: stored.generation,
            created_at: stored.created_at,
            ttl: stored.ttl,
            indices: stored.indices,
            bytes: stored.bytes,
            done: stored.done,
            cancelled: stored.cancelled,
            storage,
        }
    }
}

impl From<Job> for StoredJob {
    fn from(job: Job) -> Self {
        let (deleted, lost) = match job.storage {
            Storage::Intact => (false, false),
            Storage::Lost => (false, true),
            Storage::Deleted => (true, false),
        };
        Self {
            write_key: job.write_key,
            write_until: job.write_until,
            tokens_until: job.tokens_until,
            deleted,
            read_key: job.read_key,
            generation: job.generation,
            created_at: job.created_at,
            ttl: job.ttl,
            indices: job.indices,
            bytes: job.bytes,
            done: job.done,
            cancelled: job.cancelled,
            lost,
        }
    }
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;

    #[test]
    fn the_records_of_earlier_buffers_are_read_and_written_again_byte_for_byte() {
        let key = Digest::of(b"k");
        let ends = [("", "", Storage::Intact), ("", r#","lost":true"#, Storage::Lost)];
        let deleted = (r#""tokens_until":9,"deleted":true,"#, "", Storage::Deleted);
        for (deleted, lost, storage) in ends.into_iter().chain([deleted]) {
            for cancelled in [false, true] {
                let record = format!(
                    r#"{{"write_key":"{key}",{deleted}"read_key":null,"generation":1,"created_at":2,"ttl":3,"indices":[[0,1]],"octets":4,"done":{{"index":1,"octets":1,"failed":false,"sha256":null}},"cancelled":{cancelled}{lost}}}"#
                );
                let job = Job::decode(record.as_bytes()).expect("a record");
                assert_eq!((job.storage, job.cancelled), (storage, cancelled));
                assert_eq!(job.encode().expect("JSON"), record.as_bytes());
            }
        }
    }

    #[test]
    fn a_deleted_job_is_not_lost() {
        let record = format!(
            r#"{{"write_key":"{}","deleted":true,"read_key":null,"generation":1,"created_at":2,"ttl":3,"indices":[],"octets":0,"done":null,"cancelled":false}}"#,
            Digest::of(b"k")
        );
        let mut job = Job::decode(record.as_bytes()).expect("a record");
        job.set_lost();
        assert!(job.is_deleted() && job.is_intact());
    }
}

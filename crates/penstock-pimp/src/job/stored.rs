//! The record of a job, as stores keep it.

use serde::{Deserialize, Serialize};

use crate::{Digest, Indices};

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// The final chunk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinalChunk {
    /// Its index.
    pub index: u32,
    /// Bytes of its value.
    #[serde(rename = "octets")]
    pub bytes: u64,
    /// Whether it has an error.
    pub failed: bool,
    /// The payload's SHA-256, if the sender stated it.
    pub sha256: Option<Digest>,
}

/// The fields of a record. Their names and their order must stay: earlier buffers wrote such records, and a buffer over
/// Redis replaces a record only if it equals, byte for byte, the encoding of the job that was read.
#[derive(Serialize, Deserialize)]
pub(super) struct StoredJob {
    pub(super) write_key: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) write_until: Option<u64>,
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(super) tokens_until: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) deleted: bool,
    pub(super) read_key: Option<Digest>,
    pub(super) generation: u64,
    pub(super) created_at: u64,
    pub(super) ttl: u64,
    pub(super) indices: Indices,
    #[serde(rename = "octets")]
    pub(super) bytes: u64,
    pub(super) done: Option<FinalChunk>,
    pub(super) cancelled: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) lost: bool,
}

#[cfg(test)]
#[allow(clippy::expect_used)]
mod tests {
    use super::*;
    use crate::job::{Job, Storage};

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

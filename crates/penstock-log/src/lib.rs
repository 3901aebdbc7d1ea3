//! One log for all engines that store data on disk: records in segments, recovery, group commit,
//! atomic files.
//!
//! An engine defines its own records: a [`Label`] of 16 bytes and a body. This crate does
//! everything below that, once:
//!
//! ```text
//!  callers ── push ──► GroupCommit (one thread) ── append ──► Log ── write, fdatasync ──► Disk
//!                                                             │
//!                            00000000000000000001.SUFFIX ◄────┘     a start reads it back: Replay::record, Replay::hole
//! ```
//!
//! # Layout
//!
//! Integers are big-endian; hashes are XXH3-64.
//!
//! ```text
//! segment  "PENSLOG1"  kind (8)  log (8)  number (8)  length of the segment before it (8)  hash of these (8)   records
//! record   length of the body (4)  synced (4)  label (16)  hash of these ^ key (8)   body   hash of the body (8)
//! seal     a record's head whose length is 2^32 - 1
//! ```
//!
//! - `kind` names the engine and the version of its records. `log` is a random number, the same in
//!   all segments of a folder.
//! - `synced` says how many bytes of the segment were on the disk when the record was written. It
//!   distinguishes damage from a write that a crash cut short. A seal says only that, and its
//!   writer need not wait for the disk ([`Log::seal_unsynced`]). A record without a body ends after
//!   its head.
//! - `label` belongs to the engine. It is in the head, so that it identifies a record whose body is
//!   damaged.
//! - `key` is derived from `log` and the segment's number. No payload can look like a head, because
//!   no peer knows the key.
//!
//! # Policy
//!
//! 1. A record counts once `fdatasync` has returned, and for a new segment `fsync` of its folder.
//!    Then its waiter is answered.
//! 2. **A torn tail that was never acknowledged is cut off**: bytes at the end of the last segment
//!    that are no whole record, where no later record says that they were synced. It is logged as
//!    WARN.
//! 3. **Damage to synced bytes loses the records that it hit, and no other.** The file is kept
//!    under a second name, `NAME.damaged`; if that name has other damage, under `NAME.2.damaged`,
//!    and so on. The engine gets a [`Hole`], which names the place for its readers; the damage is
//!    logged as ERROR, and [`Log::damaged`] counts it. The next record is found by its head. A head
//!    with one wrong bit is repaired.
//! 4. **A failed write or fsync fails its waiters.** The log never writes to that segment again: it
//!    truncates the file to the synced bytes, the next append begins a new segment, and the header
//!    of the new segment says where the old one ended. A failed record does not come back once a
//!    later append has succeeded.
//! 5. A start writes the last segment again, with a seal at its end, unless it has one: bytes that
//!    change later are damage. The start may have read bytes that are only in the page cache, and
//!    once a sync of an earlier process has failed, no later sync brings them to the disk. (On a
//!    full disk the start only syncs the file, and logs WARN.) Then the next append begins a new
//!    segment.
//! 6. A file that may be another program's stops the start. Once an operator has renamed it to
//!    `NUMBER.damaged`, the whole file is a hole, and no segment gets its number.
//!
//! # Removal
//!
//! A removal is durable once the folder was synced; until then a crash may bring the segment back.
//! How an engine removes a segment depends on the effect of its return:
//!
//! - An engine that ignores the segment, because a later record replaces all its records, removes
//!   segments in any order and without a sync ([`Log::remove`]).
//! - An engine that would replay the segment passes an order ([`Log::remove_in_order`]). After a
//!   crash or a failure at any point, the remaining segments are the last ones of that order.
//!   *Oldest first*: a record that ends what an earlier record began is never removed before the
//!   earlier one. *Newest first*: the remaining segments are the log as it was at an earlier time.
//!
//! # Bounds
//!
//! A start holds one segment in memory at a time. A segment ends after [`Format::segment`] bytes; a
//! group is never split, so a segment may be longer by one group. A search after damage takes time
//! linear in the segment: it hashes 24 bytes for each place. A group has at most [`GROUP`] bytes,
//! or one item. An append copies only parts of bodies that are shorter than 1 KiB, and allocates
//! per group, not per record.

mod commit;
mod disk;
mod error;
mod frame;
mod header;
mod lock;
mod log;
mod recovery;
mod replace;
mod scan;
mod segment;

pub use commit::{GROUP, GroupCommit, Writer};
pub use disk::{Disk, DiskFile, PrivateDisk, SystemDisk, is_full, read, read_range};
pub use error::{Error, Mismatch, Result};
pub use frame::{Framing, Head, LONGEST, Label, Length};
pub use header::{HEADER, repair_bit};
pub use lock::FolderLock;
pub use log::{Log, Placement, Record};
pub use recovery::{EarlierSegment, Replay, look};
pub use replace::{keep_aside, make_folder, parent, replace};
pub use scan::{Entry, Hole};
pub use segment::Format;

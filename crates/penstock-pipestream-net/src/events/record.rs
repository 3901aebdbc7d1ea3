use penstock_io::hex;
use penstock_pipestream::{EntityHeader, EntityKey, Event, Reason};
use serde::Serialize;

/// A line of the log, without the session and the time.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub struct LogEvent(Record);

#[derive(Debug, Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Record {
    Capabilities {
        layers: u8,
        max_scope_depth: u8,
        max_entities_per_scope: u32,
        max_window_size: u32,
    },
    Entity {
        scope: u16,
        entity: u32,
        parent: Option<u32>,
        path: Option<String>,
        bytes: u64,
        sha256: String,
        content_type: String,
    },
    Status {
        scope: u16,
        entity: u32,
        status: &'static str,
        depth: u8,
        cursor: Option<u32>,
        by: &'static str,
    },
    Digest {
        scope: u16,
        merkle_root: String,
        processed: u64,
        succeeded: u64,
        failed: u64,
        deferred: u64,
    },
    Barrier {
        barrier: u16,
        parent: u32,
        released: bool,
    },
    Checkpoint {
        checkpoint_id: String,
        scope: u32,
        satisfied: bool,
    },
    Error {
        code: u64,
        scope: Option<u32>,
        entity: Option<u32>,
        message: String,
    },
    Closed {
        code: u64,
        reason: String,
    },
}

/// A whole line.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    event: &'a LogEvent,
    session: &'a str,
    time: &'a str,
}

impl LogEvent {
    /// Return the line for an event, if it has one. The end of a session has none here:
    /// [`closed`](Self::closed) makes its line, which is written after all others.
    pub(crate) fn of(event: &Event) -> Option<Self> {
        Some(Self(match event {
            Event::Agreed(agreement) => Record::Capabilities {
                layers: agreement.layer,
                max_scope_depth: agreement.max_scope_depth,
                max_entities_per_scope: agreement.max_entities_per_scope,
                max_window_size: agreement.max_window_size,
            },
            Event::Status { key, status, depth, cursor, by_peer } => Record::Status {
                scope: key.scope,
                entity: key.entity,
                status: status.name(),
                depth: *depth,
                cursor: *cursor,
                by: if *by_peer { "peer" } else { "us" },
            },
            Event::Digest { digest, .. } => Record::Digest {
                scope: digest.scope_id,
                merkle_root: hex::encode(digest.merkle_root),
                processed: digest.processed,
                succeeded: digest.succeeded,
                failed: digest.failed,
                deferred: digest.deferred,
            },
            Event::Barrier { barrier_id, parent_id, released, .. } => {
                Record::Barrier { barrier: *barrier_id, parent: *parent_id, released: *released }
            }
            Event::Checkpoint { checkpoint, satisfied, .. } => Record::Checkpoint {
                checkpoint_id: checkpoint.checkpoint_id.clone(),
                scope: checkpoint.scope_id,
                satisfied: *satisfied,
            },
            Event::Error { reason, scope, entity, .. } => Record::Error {
                code: reason.code.code(),
                scope: *scope,
                entity: *entity,
                message: reason.message.clone(),
            },
            Event::Admitted { .. }
            | Event::Gathered { .. }
            | Event::Resolved { .. }
            | Event::Released { .. }
            | Event::Capacity
            | Event::Layer2(_)
            | Event::Closed { .. } => return None,
        }))
    }

    /// Return the line for an entity whose payload is delivered.
    pub fn entity(key: EntityKey, header: &EntityHeader, path: Option<String>, bytes: u64, sha256: &str) -> Self {
        Self(Record::Entity {
            scope: key.scope,
            entity: key.entity,
            parent: (header.parent_id != 0).then_some(header.parent_id),
            path,
            bytes,
            sha256: sha256.to_owned(),
            content_type: header.content_type.clone(),
        })
    }

    /// Return a session's last line.
    pub(crate) fn closed(reason: &Reason) -> Self {
        Self(Record::Closed { code: reason.code.code(), reason: reason.message.clone() })
    }

    /// Append the line to `text`.
    pub(super) fn append(&self, session: &str, time: &str, text: &mut Vec<u8>) {
        let start = text.len();
        match serde_json::to_writer(&mut *text, &Line { event: self, session, time }) {
            Ok(()) => text.push(b'\n'),
            // A write to memory cannot fail and every key is a string, so this does not happen.
            // Half a line would be worse than none.
            Err(_) => text.truncate(start),
        }
    }
}

/// Return a time in UTC with microseconds, in the format of RFC 3339.
pub(super) fn rfc3339(unix_micros: u64) -> String {
    let (seconds, micros) = (unix_micros / 1_000_000, unix_micros % 1_000_000);
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// Return the year, month and day of a number of days since 1970-01-01. The algorithm counts in
/// eras of 400 years that begin on 1 March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rfc_3339_in_utc() {
        for (micros, text) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_400_000_001, "2000-02-29T00:00:00.000001Z"),
            (1_709_251_199_999_999, "2024-02-29T23:59:59.999999Z"),
            (1_735_689_600_000_000, "2025-01-01T00:00:00.000000Z"),
            (4_107_542_400_000_000, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(rfc3339(micros), text);
        }
    }

    #[test]
    fn a_line_has_the_names_of_the_interface() {
        let event = LogEvent(Record::Barrier { barrier: 2, parent: 7, released: true });
        let mut text = Vec::new();
        event.append("ab", "T", &mut text);
        let expected = r#"{"event":"barrier","barrier":2,"parent":7,"released":true,"session":"ab","time":"T"}"#;
        assert_eq!(String::from_utf8(text).unwrap(), format!("{expected}\n"));
    }
}

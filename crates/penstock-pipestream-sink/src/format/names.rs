//! The names of sessions, their folders and their payloads.

use std::io;

use penstock_pipestream::EntityKey;

/// Maximum number of uses of a session's ID, limited because each use searches the names of the
/// earlier ones.
const MAX_ID_USES: u32 = 1_000;

/// Return whether this is a session's ID: 32 hex digits (decision 18).
pub(crate) fn is_session_id(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

/// Return whether a name is that of a session's folder: its ID, followed by the number of its
/// earlier uses, if any.
pub(crate) fn is_session_folder(name: &str) -> bool {
    is_session(name) && is_session_id(id_of(name))
}

/// Return whether a name may be that of a session's folder, even if its ID has another form: the
/// name is no path and no hidden file. Readers accept every such name.
pub(crate) fn is_session(name: &str) -> bool {
    let (id, uses) = name.rsplit_once('.').unwrap_or((name, "1"));
    (1..=128).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
        && is_number(uses)
}

/// Return the ID of a session from its folder's name.
pub(crate) fn id_of(folder: &str) -> &str {
    folder.split_once('.').map_or(folder, |(id, _)| id)
}

/// Return the number of an ID's earlier uses, from `rest`, the part of a folder's name after the
/// ID.
pub(crate) fn uses_of(rest: &str) -> Option<u32> {
    if rest.is_empty() { Some(0) } else { rest.strip_prefix('.')?.parse().ok() }
}

/// Return the possible folder names of an ID's sessions: `ID`, `ID.1`, `ID.2` ...
pub(crate) fn session_folders(id: &str) -> impl Iterator<Item = String> {
    (0..MAX_ID_USES).map(move |before| reused(id, before))
}

/// Return the error for an ID that was used too often.
pub(crate) fn id_exhausted(id: &str) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, format!("the session ID {id} was used {MAX_ID_USES} times"))
}

/// Return the names of an entity's scope and of its payload, relative to its session.
pub(crate) fn payload_names(key: EntityKey) -> (String, String) {
    (reused(key.scope, key.scope_use), reused(key.entity, key.entity_use))
}

/// Return an ID with the number of its earlier uses, if any.
fn reused(id: impl std::fmt::Display, uses: u32) -> String {
    if uses == 0 { id.to_string() } else { format!("{id}.{uses}") }
}

/// Return the session, scope and entity in the name of a payload, `SESSION/SCOPE/ENTITY`; `None` for any other name,
/// such as one that leads out of the sink.
pub(crate) fn payload_name(file: &str) -> Option<(&str, &str, &str)> {
    let mut parts = file.split('/');
    let session = parts.next()?;
    let scope = parts.next()?;
    let entity = parts.next()?;
    let fits = parts.next().is_none() && is_session(session) && is_id(scope) && is_id(entity);
    fits.then_some((session, scope, entity))
}

/// Return whether a name is an ID, optionally followed by the number of its earlier uses and of its
/// attempt.
fn is_id(name: &str) -> bool {
    let (name, attempt) = name.split_once('-').unwrap_or((name, "1"));
    is_number(attempt)
        && match name.split_once('.') {
            Some((id, uses)) => is_number(id) && is_number(uses),
            None => is_number(name),
        }
}

fn is_number(text: &str) -> bool {
    (1..=10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_of_the_sink_are_none() {
        assert_eq!(payload_name("ab/0/7"), Some(("ab", "0", "7")));
        assert_eq!(payload_name("ab/2.1/7.13"), Some(("ab", "2.1", "7.13")));
        assert_eq!(payload_name("ab/2/7-2"), Some(("ab", "2", "7-2")));
        let wrong =
            ["", "/", "ab/0", "ab/0/7/8", "../0/7", "ab/../7", "ab/0/..", "ab//7", "/ab/0/7", "ab/0/.tmp-1", "a\0/0/1"];
        for name in wrong {
            assert_eq!(payload_name(name), None, "{name:?}");
        }
        assert!(is_session("00ff") && !is_session("closed.jsonl") && !is_session(".hidden") && !is_session(""));
        assert!(!is_session(&"a".repeat(129)));
        assert!(is_session("00ff.1") && is_session("00ff.12"));
        assert!(!is_session("00ff.") && !is_session(".1") && !is_session("00ff.x") && !is_session("00.1.1"));
    }
}

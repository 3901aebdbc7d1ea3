//! Claim checks that are settled from the lists of a sink: a server that was killed may not have
//! settled them.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use penstock_io::DriverError as _;
use penstock_io::runtime::block_on;
use penstock_io::storage::ObjectPrefix;
use penstock_io::sync::lock;
use penstock_pipestream::claims::ClaimState;
use penstock_pipestream::{SessionId, Status};
use penstock_pipestream_net::port::CLAIM;

use crate::claims::state::HERE;
use crate::claims::{Claims, failed};
use crate::folder::sessions_of;
use crate::format::LOG;
use crate::format::line::Line;
use crate::objects::ObjectSink;
use crate::{Error, Result};

impl Claims {
    /// Settle claim checks from the lists of the sessions that redeemed them: a server that was
    /// killed may have reported COMPLETE for a redeemed entity without settling its claim check.
    /// Blocks on the disk.
    pub(crate) fn settle_from(&self, sink: &Path) -> Result<()> {
        let mut redeemed: HashMap<SessionId, HashMap<String, u64>> = HashMap::new();
        for claim in lock(&self.state).book.iter() {
            if let ClaimState::Redeemed { by } = claim.state {
                redeemed.entry(by).or_default().insert(format!("{:016x}", claim.id), claim.id);
            }
        }
        for (by, claims) in redeemed {
            let mut found = HashMap::new();
            // If a session's ID was used before, its folder has a number.
            let names = sessions_of(sink, &by.to_string()).map_err(|error| Error::file("cannot read", sink, error))?;
            let lists = names.into_iter().map(|name| sink.join(name).join(LOG));
            for (path, list) in lists.filter_map(|path| File::open(&path).ok().map(|list| (path, list))) {
                for line in BufReader::new(list).split(b'\n') {
                    let line = line.map_err(|error| Error::file("cannot read", &path, error))?;
                    // A list that was cut off ends with an incomplete line.
                    let Ok(line) = Line::parse(&line) else { continue };
                    if let Some(id) = line.metadata.get(CLAIM).and_then(|claim| claims.get(claim)) {
                        // The last line of an entity counts.
                        found.insert(*id, line.status.into_owned());
                    }
                }
            }
            for (id, name) in found {
                if let Some(status) = Status::ALL.into_iter().find(|status| status.name() == name) {
                    self.settle(id, by, status);
                }
            }
        }
        Ok(())
    }

    /// [`settle_from`](Self::settle_from) for a sink in an object store. An open session may
    /// continue at another server, so an entity that its list lacks has not failed. Blocks on the
    /// store.
    pub(crate) fn settle_from_store(&self, sink: &ObjectPrefix) -> Result<()> {
        let mut redeemed: HashMap<SessionId, HashMap<String, u64>> = HashMap::new();
        for claim in lock(&self.state).book.iter() {
            if let ClaimState::Redeemed { by } = claim.state {
                redeemed.entry(by).or_default().insert(format!("{:016x}", claim.id), claim.id);
            }
        }
        for (by, claims) in redeemed.into_iter().filter(|(by, _)| *by != HERE) {
            let (mut found, session) = (HashMap::new(), by.to_string());
            let read = ObjectSink::lines(sink, &session, |line| {
                let Ok(line) = Line::parse(line) else { return };
                if let Some(id) = line.metadata.get(CLAIM).and_then(|claim| claims.get(claim)) {
                    found.insert(*id, line.status.into_owned());
                }
            });
            let over = block_on(read)?.map_err(|error| failed("cannot read the lists of", sink, &error))?;
            for id in claims.into_values() {
                let name = found.get(&id).map(String::as_str);
                match Status::ALL.into_iter().find(|status| Some(status.name()) == name) {
                    Some(status) => self.settle(id, by, status),
                    None if over => self.settle(id, by, Status::Failed),
                    None => {}
                }
            }
        }
        Ok(())
    }
}

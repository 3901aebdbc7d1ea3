//! The possible steps, and their effects.

use std::time::{Duration, Instant};

use bytes::Bytes;
use penstock_pipestream::messages::StoppingPointValidation;
use penstock_pipestream::yield_token::StoppingPoint;
use penstock_pipestream::{Admission, EntityKey, ErrorCode, Event, Layer2Event, Now, Role, Status, YieldReason};

use super::{Run, Step, frames, label, reason, restore, session};

impl Run {
    /// Return every step that may happen now.
    pub(crate) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut may = |possible: bool, step: Step| {
            if possible {
                steps.push(step);
            }
        };
        may(!self.ended, Step::Work);
        let child = self.parent.is_some() && self.announced <= self.world.children;
        may(child && self.left_out < self.world.left_out, Step::Missing);
        may(!self.to_server.is_empty(), Step::ToServer);
        may(!self.to_client.is_empty(), Step::ToClient);
        for index in 0..self.streams.len() {
            may(true, Step::Open(index));
        }
        for (index, key) in self.accepted.iter().enumerate() {
            may(true, Step::Complete(index));
            let child = key.scope > 1;
            may(child, Step::Fail(index));
            may(child, Step::Defer(index));
            may(child, Step::Skip(index));
            may(child && self.yields < self.world.yields, Step::Yield(index));
        }
        may(!self.tokens.is_empty(), Step::Resume);
        may(!self.failed.is_empty(), Step::Retry);
        may(!self.failed.is_empty(), Step::GiveUp);
        for status in [Status::Skipped, Status::Failed, Status::Abandoned] {
            let left = self.left_out < self.world.left_out && self.first_open_child().is_some();
            may(left, Step::LeaveOut(status));
        }
        may(!self.wanted.is_empty(), Step::Claim);
        let (cuts, kills) = (self.cuts < self.world.cuts, self.kills < self.world.kills);
        may(cuts, Step::Cut { keep: false });
        may(cuts && !self.accepted.is_empty(), Step::Cut { keep: true });
        may(kills, Step::KillServer);
        may(kills, Step::KillClient);
        let due = self.due();
        if due.is_some() && (self.waits < self.world.waits || steps.is_empty()) {
            steps.push(Step::Wait);
        }
        steps
    }

    fn due(&self) -> Option<Instant> {
        [self.client.poll_timeout(), self.server.poll_timeout()].into_iter().flatten().min().filter(|at| {
            // The manifest's own limit, which is far away, is excluded.
            *at < self.now.instant + Duration::from_secs(100_000)
        })
    }

    fn first_open_child(&self) -> Option<EntityKey> {
        let parent = self.parent?;
        let scope = parent.scope + 2;
        (1..self.announced)
            .map(|entity| EntityKey { scope, scope_use: 0, entity: entity as u32, entity_use: 0 })
            .find(|key| !self.sent.contains_key(key))
    }

    pub(crate) fn take(&mut self, step: Step) {
        let now = self.now;
        self.path.push(step);
        match step {
            Step::Work => self.work(false),
            Step::Missing => {
                self.left_out += 1;
                self.work(true);
            }
            Step::ToServer => {
                let frame = self.to_server.pop_front().unwrap();
                match &mut self.fresh {
                    Some(fresh) => fresh.handle_control(now, frame).unwrap(),
                    None => self.server.handle_control(now, frame).unwrap(),
                }
                self.greet();
            }
            Step::ToClient => {
                let frame = self.to_client.pop_front().unwrap();
                self.client.handle_control(now, frame).unwrap();
            }
            Step::Open(index) => {
                let (stream, header) = self.streams.remove(index);
                if let Admission::Accepted(accepted) = self.server.handle_header(now, stream, &header).unwrap() {
                    self.accept(accepted.key);
                }
            }
            Step::Complete(_) | Step::Fail(_) | Step::Defer(_) | Step::Skip(_) | Step::Yield(_) => self.judge(step),
            Step::Resume => {
                let (key, token) = self.tokens.remove(0);
                self.client.resume(key, &token).unwrap();
            }
            Step::Retry => {
                let key = self.failed.remove(0);
                self.client.retry(now, key).unwrap();
            }
            Step::GiveUp => {
                let key = self.failed.remove(0);
                self.client.fail(now, key, reason(ErrorCode::InternalError));
            }
            Step::LeaveOut(status) => self.leave_out(status),
            Step::Claim => {
                let key = self.wanted.remove(0);
                assert_eq!(self.server.defer(now, key, 7, 9), Ok(true));
            }
            Step::Wait => {
                self.waits += 1;
                let at = self.due().unwrap();
                let micros = at.duration_since(now.instant).as_micros() as u64;
                self.now = Now { instant: at, unix_micros: now.unix_micros + micros };
                self.client.handle_timeout(self.now);
                self.server.handle_timeout(self.now);
            }
            Step::Cut { .. } | Step::KillServer | Step::KillClient => self.break_down(step),
        }
        self.collect();
    }

    fn leave_out(&mut self, status: Status) {
        self.left_out += 1;
        let key = self.first_open_child().unwrap();
        self.failed.retain(|failed| *failed != key);
        let (now, why) = (self.now, reason(ErrorCode::InternalError));
        // The entity may have been given up before; that is no error.
        let said = match status {
            Status::Skipped => self.client.skip(now, key, why).is_ok(),
            Status::Abandoned => self.client.abandon(now, key, why).is_ok(),
            _ => {
                self.client.fail(now, key, why);
                true
            }
        };
        assert!(said);
    }

    /// Lose the connection, alone or together with a process, and open another.
    fn break_down(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Cut { keep } => {
                self.cuts += 1;
                self.lose(keep);
                assert!(self.client.suspend(now, |_| false));
                self.reconnect();
            }
            Step::KillServer => {
                self.kills += 1;
                self.lose(false);
                self.wanted.clear();
                self.server = restore(Role::Server, &self.server_records, now);
                assert!(self.client.suspend(now, |_| false));
                self.reconnect();
            }
            Step::KillClient => {
                self.kills += 1;
                self.lose(false);
                self.failed.clear();
                self.tokens.clear();
                self.client = restore(Role::Client, &self.client_records, now);
                self.check_sources();
                self.reconnect();
            }
            other => panic!("{other:?} loses nothing"),
        }
    }

    /// Drop everything in flight, and suspend the server's session. With `keep`, the accepted payloads have arrived.
    fn lose(&mut self, keep: bool) {
        self.to_server.clear();
        self.to_client.clear();
        self.streams.clear();
        self.fresh = None;
        if !keep {
            self.accepted.clear();
        }
        assert!(self.server.suspend(self.now, |key| self.accepted.contains(&key)));
    }

    fn reconnect(&mut self) {
        self.client.reconnect(self.now).unwrap();
        self.fresh = Some(session(Role::Server, self.now));
    }

    /// Find the session that a new connection resumes, as the server's driver does.
    fn greet(&mut self) {
        let Some(fresh) = &mut self.fresh else { return };
        let returns = std::iter::from_fn(|| fresh.poll_event())
            .any(|event| matches!(event, Event::Layer2(Layer2Event::Returns(_))));
        frames(fresh, &mut self.to_client);
        if let Some(fresh) = self.fresh.take_if(|_| returns) {
            self.server.adopt(self.now, fresh).unwrap();
        }
    }

    /// Decide about an entity that the server receives.
    fn judge(&mut self, step: Step) {
        let now = self.now;
        match step {
            Step::Complete(index) => {
                let key = self.accepted.remove(index);
                assert!(self.delivered.insert(key), "{key:?} is delivered twice");
                self.server.complete(now, key);
            }
            Step::Fail(index) => {
                let key = self.accepted.remove(index);
                self.server.fail(now, key, reason(ErrorCode::IntegrityError));
            }
            Step::Defer(index) => assert_eq!(self.server.defer(now, self.accepted[index], 7, 9), Ok(true)),
            Step::Skip(index) => {
                assert_eq!(self.server.skip(now, self.accepted[index], reason(ErrorCode::NoError)), Ok(true));
            }
            Step::Yield(index) => {
                self.yields += 1;
                let point = StoppingPoint {
                    reason: YieldReason::RateLimited,
                    continuation: Bytes::new(),
                    validation: StoppingPointValidation {
                        state_checksum: Some(Bytes::from_static(&[1; 32])),
                        is_resumable: Some(true),
                        ..Default::default()
                    },
                };
                self.server.yield_entity(now, self.accepted[index], &point).unwrap();
            }
            other => panic!("{other:?} is no verdict"),
        }
    }

    fn work(&mut self, missing: bool) {
        match self.parent {
            None => {
                let label = Bytes::from(label(0, 1));
                let policy = Some(&self.world.policy);
                let ticket = self.client.announce_labelled(self.now, None, true, policy, label).unwrap().unwrap();
                self.parent = Some(ticket.key);
                self.announced = 1;
                self.send(&ticket);
            }
            Some(parent) if self.announced <= self.world.children => {
                let label = Bytes::from(label(parent.scope + 2, self.announced as u32));
                let announced = self.client.announce_labelled(self.now, Some(parent), false, None, label);
                let ticket = announced.unwrap().unwrap();
                self.announced += 1;
                match missing {
                    true => self.client.fail_unsent(self.now, ticket.key, reason(ErrorCode::EntityInvalid)),
                    false => self.send(&ticket),
                }
            }
            Some(parent) => {
                self.client.end_children(self.now, parent).unwrap();
                self.ended = true;
            }
        }
    }
}

//! Checkpoints (section 9.3, decision 13), and the effect of a CHECKPOINT at layer 0 (decision 12).

use std::time::Duration;

use super::Session;
use super::checkpoints::OpenCheckpoint;
use super::counters::Limit;
use super::input::Input;
use super::types::Event;
use crate::error::{Error, LimitError, Misuse, Result, Violation};
use crate::manifest::EntryKey;
use crate::time::Now;
use crate::{Checkpoint, Frame};

/// The timeout of a checkpoint that states none (section 10.4).
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The most bytes of checkpoint IDs that are kept for a peer.
const MAX_OPEN_BYTES: usize = 16 << 20;

impl Session {
    /// Ask the peer to answer once everything before `entity` in `scope` is terminal; 0 means everything announced so
    /// far. `timeout` defaults to 30 s. The answer is [`Event::Checkpoint`] with the returned sequence number.
    ///
    /// # Errors
    ///
    /// Misuse before the negotiation, or after the session was closed.
    pub fn checkpoint(&mut self, now: Now, scope: u32, entity: u32, timeout: Option<Duration>) -> Result<u64> {
        self.agreed()?;
        if self.is_closed() {
            return Err(Misuse::Closed.into());
        }
        self.note(Some(now), || Input::Checkpoint { scope, entity, timeout });
        Ok(self.ask_checkpoint(scope, entity, timeout))
    }

    pub(super) fn ask_checkpoint(&mut self, scope: u32, entity: u32, timeout: Option<Duration>) -> u64 {
        self.checkpoints.next_sequence += 1;
        let sequence_number = self.checkpoints.next_sequence;
        let frame = Checkpoint {
            checkpoint_id: format!("penstock-{sequence_number}"),
            sequence_number,
            checkpoint_entity_id: entity,
            scope_id: scope,
            flags: 0,
            timeout_ms: timeout.map_or(0, |timeout| u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1)),
        };
        self.send_frame(&Frame::Checkpoint(frame.clone()));
        self.checkpoints.requests.insert(sequence_number, frame);
        sequence_number
    }

    pub(super) fn handle_checkpoint(&mut self, now: Now, frame: Checkpoint) -> Result<()> {
        if frame.flags & (Checkpoint::FLAG_SATISFIED | Checkpoint::FLAG_TIMED_OUT) != 0 {
            self.handle_checkpoint_answer(frame);
            return Ok(());
        }
        let at = |error: Error| error.at(frame.scope_id, frame.checkpoint_entity_id);
        let unknown = || Error::from(Violation::CheckpointScope { scope: frame.scope_id });
        let Ok(scope_id) = u16::try_from(frame.scope_id) else { return Err(at(unknown())) };
        if self.layer() == 0 && scope_id > 1 {
            return Err(at(Violation::Layer1Checkpoint { scope: scope_id.into() }.into()));
        }
        let bytes = self.checkpoints.open_bytes + frame.checkpoint_id.len();
        if self.checkpoints.open.len() >= self.config.max_open_checkpoints || bytes > MAX_OPEN_BYTES {
            self.counters.exceeded(Limit::Checkpoints, 1);
            return Err(at(LimitError::Checkpoints { limit: self.config.max_open_checkpoints }.into()));
        }
        let covers = match self.role.owns(scope_id) {
            true => self.outbound.get(&scope_id).map(|scope| scope.covered_by(frame.checkpoint_entity_id)),
            false => self.inbound.get(&scope_id).map(|scope| scope.covered_by(frame.checkpoint_entity_id)),
        };
        // Every entity of a released scope is terminal, so there is nothing to wait for.
        let released =
            self.peer_scopes.is_released(scope_id) || (self.role.owns(scope_id) && self.own_scopes.was_used(scope_id));
        let Some(covers) = covers.or_else(|| released.then_some(0)) else { return Err(at(unknown())) };
        let timeout = match frame.timeout_ms {
            0 => DEFAULT_TIMEOUT,
            millis => Duration::from_millis(u64::from(millis)),
        };
        let timeout = timeout.min(self.config.max_checkpoint_time);
        if self.layer() == 0 && !self.role.owns(scope_id) {
            self.level_zero.covered = self.level_zero.covered.max(covers);
        }
        self.checkpoints.open_bytes = bytes;
        self.checkpoints.open.push(OpenCheckpoint { frame, scope_id, covers, deadline: now.instant + timeout });
        self.evaluate_checkpoints(now);
        Ok(())
    }

    fn handle_checkpoint_answer(&mut self, frame: Checkpoint) {
        let matches_request = self
            .checkpoints
            .requests
            .get(&frame.sequence_number)
            .is_some_and(|sent| sent.checkpoint_id == frame.checkpoint_id);
        if !matches_request {
            return;
        }
        self.checkpoints.requests.remove(&frame.sequence_number);
        let satisfied = frame.flags & Checkpoint::FLAG_SATISFIED != 0;
        let sequence = frame.sequence_number;
        if satisfied {
            self.checkpoint_passed(&frame);
        }
        self.events.push_back(Event::Checkpoint { checkpoint: frame, satisfied, ours: true });
        self.checkpoint_answered(sequence);
    }

    /// Answer every checkpoint of the peer whose three conditions hold (section 9.3).
    pub(super) fn evaluate_checkpoints(&mut self, now: Now) {
        let mut index = 0;
        while let Some(open) = self.checkpoints.open.get(index) {
            if self.is_satisfied(index, open) {
                self.answer_checkpoint(now, index, Checkpoint::FLAG_SATISFIED);
                // Checkpoints nested in it, or waiting for it, may be satisfied now.
                index = 0;
            } else {
                index += 1;
            }
        }
    }

    fn is_satisfied(&self, index: usize, open: &OpenCheckpoint) -> bool {
        // Condition 1: every entity that it covers is terminal. Condition 2 follows: a dehydrated entity is terminal
        // only if its manifest entry is resolved.
        let terminal = match self.role.owns(open.scope_id) {
            true => self.outbound.get(&open.scope_id).is_none_or(|scope| scope.resolved_up_to(open.covers)),
            false => self
                .inbound
                .get(&open.scope_id)
                .is_none_or(|scope| scope.is_bound() && scope.resolved_up_to(open.covers)),
        };
        // Condition 3: earlier checkpoints in the scopes below its own are answered.
        terminal
            && !self.checkpoints.open.iter().take(index).any(|earlier| self.is_below(earlier.scope_id, open.scope_id))
    }

    /// Return whether a scope is anywhere below another one.
    fn is_below(&self, scope_id: u16, ancestor: u16) -> bool {
        let parent = |scope_id: u16| match self.role.owns(scope_id) {
            true => self.outbound.get(&scope_id).and_then(|scope| scope.parent),
            false => self.inbound.get(&scope_id).and_then(|scope| scope.parent),
        };
        let mut above = parent(scope_id);
        while let Some(key) = above {
            if key.scope == ancestor {
                return true;
            }
            above = parent(key.scope);
        }
        false
    }

    fn answer_checkpoint(&mut self, _now: Now, index: usize, flag: u32) {
        let open = self.checkpoints.open.remove(index);
        self.checkpoints.open_bytes -= open.frame.checkpoint_id.len();
        let answer = Checkpoint { flags: flag, ..open.frame };
        self.send_frame(&Frame::Checkpoint(answer.clone()));
        if flag == Checkpoint::FLAG_SATISFIED {
            self.checkpoint_passed(&answer);
        }
        self.events.push_back(Event::Checkpoint {
            checkpoint: answer,
            satisfied: flag == Checkpoint::FLAG_SATISFIED,
            ours: false,
        });
    }

    fn checkpoint_passed(&mut self, checkpoint: &Checkpoint) {
        let is_open = u16::try_from(checkpoint.scope_id)
            .is_ok_and(|scope| self.outbound.contains_key(&scope) || self.inbound.contains_key(&scope));
        self.checkpoints.pass(checkpoint, is_open);
    }

    pub(super) fn expire_checkpoints(&mut self, now: Now) {
        let before = self.checkpoints.open.len();
        while let Some(index) = self.checkpoints.open.iter().position(|open| open.deadline <= now.instant) {
            self.counters.exceeded(Limit::CheckpointTime, 1);
            self.answer_checkpoint(now, index, Checkpoint::FLAG_TIMED_OUT);
        }
        if self.checkpoints.open.len() != before {
            // The session continues (decision 13), and so do checkpoints that waited for a nested one.
            self.evaluate_checkpoints(now);
        }
    }

    /// Complete the parents at layer 0 that a CHECKPOINT covers and whose children are all terminal, before the
    /// CHECKPOINT itself is evaluated (decision 12). An entity's parent is stated in its header, so a parent is closed
    /// only once the headers of everything covered have arrived.
    pub(super) fn advance_level_zero(&mut self, now: Now) {
        let root = 1 - self.role.root_scope();
        let Some(scope) = self.inbound.get(&root) else { return };
        self.level_zero.known =
            scope.first_without(self.level_zero.known, self.level_zero.covered, |entity| entity.header_seen);
        if self.level_zero.known >= self.level_zero.covered {
            let covered = self.level_zero.covered;
            let count =
                self.level_zero.parents.iter().take_while(|parent| scope.position_of(**parent) < covered).count();
            for parent in self.level_zero.parents.drain(..count).collect::<Vec<_>>() {
                self.level_zero.closing.insert(parent.entry());
                self.close_level_zero(parent.entry());
            }
        }
        while let Some(resolution) = self.gathering.pop_resolved() {
            self.gather_level_zero(now, &resolution);
        }
    }
    /// Seal the entry of a parent that a CHECKPOINT covers once none of its children is open. Not before that: a sender
    /// may still announce children of a parent while another one's CHECKPOINT passes.
    pub(super) fn close_level_zero(&mut self, key: EntryKey) {
        if !self.level_zero.closing.contains(&key) || self.gathering.unresolved_count(key) > 0 {
            return;
        }
        self.level_zero.closing.remove(&key);
        if self.gathering.contains(key) {
            // The entry is open, because the manifest has it and nothing else seals it.
            let sealed = self.gathering.seal(key);
            debug_assert!(sealed.is_ok(), "{sealed:?}");
        }
    }

    /// Record that one of our parents at layer 0 gets no more children. The CHECKPOINT that completes it covers
    /// everything announced, so it waits until no other parent gets more children.
    pub(super) fn end_own_level_zero(&mut self) -> Result<()> {
        self.level_zero.own_open = self.level_zero.own_open.saturating_sub(1);
        match self.level_zero.own_open {
            0 => {
                self.agreed()?;
                self.ask_checkpoint(u32::from(self.role.root_scope()), 0, None);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

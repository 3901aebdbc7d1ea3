//! CAPABILITIES, 0x80 (section 3.4), and the agreement of two of them (decision 1).

use bytes::BytesMut;
use serde::{Deserialize, Serialize};

use super::variable::{encode_variable, to_vec};
use crate::error::{Misuse, Result, Violation};
use crate::messages::{CapabilitiesMessage, decode_message};

pub(super) const TYPE: u8 = 0x80;

/// The default of `max_scope_depth`, and its largest value (decision 1).
const MAX_SCOPE_DEPTH: u8 = 7;
/// The default of `max_entities_per_scope` (section 10.3).
const DEFAULT_MAX_ENTITIES: u32 = 4_294_967_294;
/// The default of `max_window_size` is 2^31, but circular order holds only up to this value
/// (decision 1).
const MAX_WINDOW_SIZE: u32 = 2_147_483_646;

/// The capabilities of an endpoint. A number that is 0 or not set means the default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Layer 0, without which there is no session.
    pub layer0: bool,
    /// Layer 1: scopes, digests, barriers.
    pub layer1: bool,
    /// Layer 2: yields, claim checks, policies.
    pub layer2: bool,
    /// The deepest scope, by default 7.
    pub max_scope_depth: Option<u32>,
    /// The most entities of one scope, by default 4,294,967,294.
    pub max_entities_per_scope: Option<u32>,
    /// The most unresolved entities of one scope, by default 2^31.
    pub max_window_size: Option<u32>,
}

/// The capabilities that both ends use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreement {
    /// The highest layer that both ends offer.
    pub layer: u8,
    /// The deepest scope.
    pub max_scope_depth: u8,
    /// The most entities of one scope.
    pub max_entities_per_scope: u32,
    /// The most unresolved entities of one scope.
    pub max_window_size: u32,
}

impl Default for Capabilities {
    /// Return layers 0 and 1, and the protocol's defaults.
    fn default() -> Self {
        Self {
            layer0: true,
            layer1: true,
            layer2: false,
            max_scope_depth: None,
            max_entities_per_scope: None,
            max_window_size: None,
        }
    }
}

impl Capabilities {
    /// Return the agreement between `self`, this end's capabilities, and those of the peer
    /// (decision 1).
    pub fn negotiate(&self, peer: &Self) -> Result<Agreement> {
        if !self.layer0 {
            return Err(Misuse::NoLayer0.into());
        }
        if !peer.layer0 {
            return Err(Violation::NoLayer0.into());
        }
        // Layer 2 requires layer 1: without it both are off.
        let layer1 = self.layer1 && peer.layer1;
        let layer2 = layer1 && self.layer2 && peer.layer2;
        let smaller = |field: fn(&Self) -> Option<u32>, default: u32| {
            let set = |capabilities| field(capabilities).filter(|value| *value != 0).unwrap_or(default);
            set(self).min(set(peer)).min(default)
        };
        let depth = smaller(|capabilities| capabilities.max_scope_depth, u32::from(MAX_SCOPE_DEPTH));
        Ok(Agreement {
            layer: u8::from(layer1) + u8::from(layer2),
            max_scope_depth: u8::try_from(depth).unwrap_or(MAX_SCOPE_DEPTH),
            max_entities_per_scope: smaller(|capabilities| capabilities.max_entities_per_scope, DEFAULT_MAX_ENTITIES),
            max_window_size: smaller(|capabilities| capabilities.max_window_size, MAX_WINDOW_SIZE),
        })
    }

    /// Append the frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let message = CapabilitiesMessage {
            layer0_core: Some(self.layer0),
            layer1_recursive: Some(self.layer1),
            layer2_resilience: Some(self.layer2),
            max_scope_depth: self.max_scope_depth,
            max_entities_per_scope: self.max_entities_per_scope,
            max_window_size: self.max_window_size,
        };
        encode_variable(TYPE, &message, out);
    }

    /// Return the bytes of the frame.
    pub fn encode_to_vec(&self) -> Vec<u8> {
        to_vec(|out| self.encode(out))
    }

    /// Parse a payload.
    pub(super) fn parse(payload: &[u8]) -> Result<Self> {
        let message: CapabilitiesMessage = decode_message(payload)?;
        Ok(Self {
            layer0: message.layer0_core.unwrap_or_default(),
            layer1: message.layer1_recursive.unwrap_or_default(),
            layer2: message.layer2_resilience.unwrap_or_default(),
            max_scope_depth: message.max_scope_depth,
            max_entities_per_scope: message.max_entities_per_scope,
            max_window_size: message.max_window_size,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Frame;
    use super::*;
    use crate::error::ErrorCode;

    fn layers(layer1: bool, layer2: bool) -> Capabilities {
        Capabilities { layer1, layer2, ..Capabilities::default() }
    }

    #[test]
    fn flags_are_conjoined_and_layer_2_needs_layer_1() {
        let agreed = |ours: &Capabilities, peers| ours.negotiate(&peers).expect("layer 0").layer;
        let all = layers(true, true);
        assert_eq!(agreed(&all, layers(true, true)), 2);
        assert_eq!(agreed(&all, layers(true, false)), 1);
        assert_eq!(agreed(&all, layers(false, false)), 0);
        assert_eq!(agreed(&all, layers(false, true)), 0);
        assert_eq!(agreed(&layers(true, false), layers(true, true)), 1);
    }

    #[test]
    fn numbers_are_the_smaller_ones_within_what_the_protocol_can_do() {
        let with = |depth, entities, window| Capabilities {
            max_scope_depth: depth,
            max_entities_per_scope: entities,
            max_window_size: window,
            ..Capabilities::default()
        };
        let agreed = |a: &Capabilities, b: &Capabilities| {
            let agreement = a.negotiate(b).expect("layer 0");
            assert_eq!(Ok(agreement), b.negotiate(a));
            (agreement.max_scope_depth, agreement.max_entities_per_scope, agreement.max_window_size)
        };
        let defaults = (7, 4_294_967_294, 2_147_483_646);
        assert_eq!(agreed(&with(None, None, None), &with(None, None, None)), defaults);
        assert_eq!(agreed(&with(Some(0), Some(0), Some(0)), &with(None, None, None)), defaults);
        assert_eq!(agreed(&with(Some(9), Some(u32::MAX), Some(u32::MAX)), &with(None, None, None)), defaults);
        assert_eq!(agreed(&with(Some(3), Some(10), Some(64)), &with(Some(4), Some(9), None)), (3, 9, 64));
    }

    #[test]
    fn a_peer_without_layer_0_is_refused() {
        let bytes = [0x80, 0, 0, 0, 0];
        let Ok(Some((Frame::Capabilities(peer), 5))) = Frame::decode(&bytes) else { panic!("an empty message") };
        let error = Capabilities::default().negotiate(&peer).expect_err("no layer 0");
        assert_eq!(error.code(), ErrorCode::LayerUnsupported);
        let error = peer.negotiate(&Capabilities::default()).expect_err("no layer 0");
        assert_eq!(error.kind(), penstock_wire::ErrorKind::Misuse);
    }
}

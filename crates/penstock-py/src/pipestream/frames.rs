//! Encoding and decoding for the dataclasses of `python/penstock/pipestream`, with one pair of
//! functions for each.

use bytes::Bytes;
use penstock_pipestream::messages::{ClaimCheck, ClosedEnums, CompletionPolicy, decode_message};
use penstock_pipestream::{
    Barrier, Capabilities, Checkpoint, EntityHeader, Error, ErrorCode, Frame, HeaderDecoder, ScopeDigest, Status,
    StatusFrame,
};
use penstock_wire::ErrorKind;
use prost::Message;
use pyo3::prelude::*;

use super::fields::{
    AgreementFields, BarrierFields, CapabilitiesFields, CheckpointFields, ClaimFields, DigestFields, HeaderFields,
    PolicyFields, StatusFields,
};
use crate::error::{IntoPyErr, pipestream_error};

/// Return the bytes of a STATUS frame, from the type byte on.
#[pyfunction]
pub(crate) fn encode_status(frame: StatusFields) -> PyResult<Bytes> {
    let frame = StatusFrame::try_from(frame).map_err(IntoPyErr::into_py_err)?;
    Ok(frame.encode_to_vec().into())
}

/// Return the STATUS frame at the start of `data`, and its length.
#[pyfunction]
pub(crate) fn decode_status(data: &[u8]) -> PyResult<(StatusFields, usize)> {
    decode("STATUS", data, |frame| if let Frame::Status(frame) = frame { Some(frame.into()) } else { None })
}

/// Return the bytes of a SCOPE_DIGEST frame.
#[pyfunction]
pub(crate) fn encode_scope_digest(frame: DigestFields) -> Bytes {
    ScopeDigest::from(frame).encode_to_vec().into()
}

/// Return the SCOPE_DIGEST frame at the start of `data`, and its length.
#[pyfunction]
pub(crate) fn decode_scope_digest(data: &[u8]) -> PyResult<(DigestFields, usize)> {
    decode("SCOPE_DIGEST", data, |frame| if let Frame::ScopeDigest(frame) = frame { Some(frame.into()) } else { None })
}

/// Return the bytes of a BARRIER frame.
#[pyfunction]
pub(crate) fn encode_barrier(frame: BarrierFields) -> Bytes {
    Barrier::from(frame).encode_to_vec().into()
}

/// Return the BARRIER frame at the start of `data`, and its length.
#[pyfunction]
pub(crate) fn decode_barrier(data: &[u8]) -> PyResult<(BarrierFields, usize)> {
    decode("BARRIER", data, |frame| if let Frame::Barrier(frame) = frame { Some(frame.into()) } else { None })
}

/// Return the bytes of a CAPABILITIES frame.
#[pyfunction]
pub(crate) fn encode_capabilities(frame: CapabilitiesFields) -> Bytes {
    Capabilities::from(frame).encode_to_vec().into()
}

/// Return the CAPABILITIES frame at the start of `data`, and its length.
#[pyfunction]
pub(crate) fn decode_capabilities(data: &[u8]) -> PyResult<(CapabilitiesFields, usize)> {
    decode("CAPABILITIES", data, |frame| if let Frame::Capabilities(frame) = frame { Some(frame.into()) } else { None })
}

/// Return the agreement of two CAPABILITIES.
#[pyfunction]
pub(crate) fn negotiate(ours: CapabilitiesFields, peer: CapabilitiesFields) -> PyResult<AgreementFields> {
    let agreement = Capabilities::from(ours).negotiate(&peer.into()).map_err(IntoPyErr::into_py_err)?;
    Ok(agreement.into())
}

/// Return the bytes of a CHECKPOINT frame.
#[pyfunction]
pub(crate) fn encode_checkpoint(frame: CheckpointFields) -> Bytes {
    Checkpoint::from(frame).encode_to_vec().into()
}

/// Return the CHECKPOINT frame at the start of `data`, and its length.
#[pyfunction]
pub(crate) fn decode_checkpoint(data: &[u8]) -> PyResult<(CheckpointFields, usize)> {
    decode("CHECKPOINT", data, |frame| if let Frame::Checkpoint(frame) = frame { Some(frame.into()) } else { None })
}

/// Return the bytes of an entity header, its length first.
#[pyfunction]
pub(crate) fn encode_header(header: HeaderFields) -> Bytes {
    EntityHeader::from(header).encode()
}

/// Return the entity header at the start of `data`, and its length.
#[pyfunction]
pub(crate) fn decode_header(data: Bytes) -> PyResult<(HeaderFields, usize)> {
    let length = data.len();
    let mut decoder = HeaderDecoder::new();
    match decoder.push(data).map_err(IntoPyErr::into_py_err)? {
        Some(header) => Ok((header.into(), length.saturating_sub(decoder.take_rest().len()))),
        None => Err(cut_short("entity header", length)),
    }
}

/// Return the bytes of a CompletionPolicy message. Unknown enum values are rejected, as they are from a peer.
#[pyfunction]
pub(crate) fn encode_policy(message: PolicyFields) -> PyResult<Bytes> {
    let message = CompletionPolicy::from(message);
    message.validate().map_err(IntoPyErr::into_py_err)?;
    Ok(message.encode_to_vec().into())
}

/// Decode `data` as a CompletionPolicy message.
#[pyfunction]
pub(crate) fn decode_policy(data: &[u8]) -> PyResult<PolicyFields> {
    decode_message::<CompletionPolicy>(data).map(Into::into).map_err(IntoPyErr::into_py_err)
}

/// Return the bytes of a ClaimCheck message.
#[pyfunction]
pub(crate) fn encode_claim(message: ClaimFields) -> Bytes {
    ClaimCheck::from(message).encode_to_vec().into()
}

/// Decode `data` as a ClaimCheck message.
#[pyfunction]
pub(crate) fn decode_claim(data: Bytes) -> PyResult<ClaimFields> {
    decode_message::<ClaimCheck>(data).map(Into::into).map_err(IntoPyErr::into_py_err)
}

/// Return the Merkle root over entity IDs and status codes in any order (section 9.4).
#[pyfunction]
pub(crate) fn merkle_root(py: Python<'_>, leaves: Vec<(u32, u8)>) -> PyResult<[u8; 32]> {
    py.detach(|| {
        let leaves: Result<Vec<_>, Error> =
            leaves.into_iter().map(|(entity_id, status)| Ok((entity_id, Status::try_from(status)?))).collect();
        leaves.map(penstock_pipestream::merkle_root)
    })
    .map_err(IntoPyErr::into_py_err)
}

fn decode<T>(name: &str, data: &[u8], wanted: impl FnOnce(Frame) -> Option<T>) -> PyResult<(T, usize)> {
    let Some((frame, length)) = Frame::decode(data).map_err(IntoPyErr::into_py_err)? else {
        return Err(cut_short("frame", data.len()));
    };
    let frame_type = frame.frame_type();
    wanted(frame)
        .map(|fields| (fields, length))
        .ok_or_else(|| invalid(format!("a frame of type 0x{frame_type:02X} is not a {name}")))
}

fn cut_short(what: &str, length: usize) -> PyErr {
    invalid(format!("the {what} is cut short after {length} bytes"))
}

/// Return the error for a frame that is cut off by the end of the stream: ENTITY_INVALID (decision
/// 3).
fn invalid(message: String) -> PyErr {
    pipestream_error(message, ErrorCode::EntityInvalid, ErrorKind::Malformed)
}

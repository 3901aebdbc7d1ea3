//! The extension module `penstock._core`: the list of what it exports to Python.
//!
//! Each protocol has its own module; `python/penstock` wraps the exports in typed classes, and
//! `_core.pyi` describes them (stubtest compares both). Nothing here starts a thread or a runtime
//! at import: PySpark forks its workers, and a runtime made before a fork hangs after it.

mod columns;
mod documents;
mod error;
mod ingest;
mod logging;
mod lumberjack;
mod pimp;
mod pipestream;
mod quicx;
mod rows;
mod spool;
mod vgi;

use pyo3::prelude::*;

/// The Rust core of penstock. Use the typed modules (`penstock.pipestream`, ...), not this one.
#[pymodule]
mod _core {
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_export]
    use super::logging::init_logging;

    #[pymodule_export]
    use super::columns::column;

    #[pymodule_export]
    use super::pipestream::{
        aio::{Futures, Operation},
        entity_id::EntityIdSpace,
        frames::{
            decode_barrier, decode_capabilities, decode_checkpoint, decode_claim, decode_header, decode_policy,
            decode_scope_digest, decode_status, encode_barrier, encode_capabilities, encode_checkpoint, encode_claim,
            encode_header, encode_policy, encode_scope_digest, encode_status, merkle_root, negotiate,
        },
        incoming::IncomingEntity,
        manifest::Manifest,
        pipe_doc::{decode_pipe_doc, doc_id_of_key, encode_pipe_doc, make_uri, parse_uri, pipe_doc_of_entry},
        reader::{SinkReader, SinkRows, row_schema},
        references::{check_reference, decode_reference, encode_reference, reference_of_url, reference_url, split_key},
        server::{Server, write_certificates},
        session::Session,
    };

    #[pymodule_export]
    use super::lumberjack::{
        aio::{
            lumberjack_close, lumberjack_flush, lumberjack_listen, lumberjack_next, lumberjack_open,
            lumberjack_send_column, lumberjack_send_json, lumberjack_send_maps, lumberjack_shutdown,
        },
        receiver::{LumberjackBatch, LumberjackReceiver},
        sender::LumberjackSender,
    };

    #[pymodule_export]
    use super::quicx::{
        aio::{
            quicx_dead, quicx_dead_list, quicx_done_before, quicx_next, quicx_observe, quicx_produce, quicx_rest,
            quicx_start, quicx_stats, quicx_stop, quicx_submit, quicx_submit_many, quicx_verdict, quicx_work,
        },
        daemon::QuicxDaemon,
        pool::{QuicxBlock, QuicxPool},
        producer::QuicxProducer,
        worker::QuicxWorker,
    };

    #[pymodule_export]
    use super::pimp::{
        aio::{
            pimp_cancel, pimp_close, pimp_create, pimp_delete, pimp_describe, pimp_end, pimp_flush, pimp_listen,
            pimp_metadata, pimp_next, pimp_open, pimp_send, pimp_status, pimp_take_over,
        },
        buffer::PimpBuffer,
        consumer::PimpConsumer,
        job::{PimpJob, pimp_ask, pimp_trigger},
        sender::{PimpSender, pimp_check_sender},
        trigger::{PimpAsked, PimpTriggerServer},
    };

    #[pymodule_export]
    use super::documents::{Content, ContentTree, PyDehydrator, default_limits, document_key};

    #[pymodule_export]
    use super::ingest::{DocumentOutcome, DocumentSender, SentDocument, divide, part_schema};

    #[pymodule_export]
    use super::rows::RowSender;

    #[pymodule_export]
    use super::spool::{
        event_schema,
        reader::{SpoolReader, SpoolRows},
        writer::Spool,
    };

    #[pymodule_export]
    use super::vgi::{
        client::{VgiClient, VgiClientStream},
        codec::{vgi_decode, vgi_encode, vgi_token_open, vgi_token_seal},
        external::{VgiExternal, VgiFetcher, VgiStore},
        files::VgiTls,
        http_call::VgiHttpCall,
        http_client::{VgiHttpClient, VgiHttpClientStream},
        http_server::{VgiHttp, VgiHttpServer},
        listening::{VgiAccepted, VgiListener},
        protocol::{VgiProtocol, vgi_description_hash, vgi_keys},
        segment::{VgiSegment, VgiTable},
        server::{VgiCall, VgiConnection, VgiMetrics, VgiServer},
        stop::VgiStop,
    };
}

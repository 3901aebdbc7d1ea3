//! The bodies of the fuzz targets, on inputs that are nearly valid.

#![allow(clippy::expect_used, clippy::indexing_slicing)]

#[allow(unreachable_pub)]
mod bodies;

use std::sync::Arc;

use arrow_array::{ArrayRef, Float64Array, StringArray};
use arrow_schema::{DataType, Field, Schema};
use penstock_vgi::ipc::Output;
use penstock_vgi::shm_layout::{HEADER, Table};
use penstock_vgi::{Batch, key, write_request};
use proptest::prelude::*;

use crate::fuzzing::bodies::{vgi_connection, vgi_external, vgi_http, vgi_ipc, vgi_shm_header, vgi_token};

fn request(name: &str) -> Vec<u8> {
    let schema = Schema::new(vec![Field::new("a", DataType::Float64, false), Field::new("s", DataType::Utf8, true)]);
    let columns: Vec<ArrayRef> =
        vec![Arc::new(Float64Array::from(vec![1.5])), Arc::new(StringArray::from(vec![Some("text")]))];
    let metadata = [(key::REQUEST_ID, b"0123456789abcdef".as_slice())].into_iter().collect();
    let mut out = Output::new();
    let batch = Batch::new(Arc::new(schema), columns, 1);
    write_request(name, batch, metadata, &mut out).expect("writable");
    out.concat()
}

fn changes() -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((any::<usize>(), any::<u8>()), 0..4)
}

fn changed(mut bytes: Vec<u8>, changes: Vec<(usize, u8)>) -> Vec<u8> {
    for (at, to) in changes {
        let at = at % bytes.len();
        bytes[at] = to;
    }
    bytes
}

proptest! {
    #[test]
    fn ipc_streams_that_are_nearly_right_do_no_harm(cut in any::<u8>(), changes in changes()) {
        let bytes = changed([request("add"), request("count")].concat(), changes);
        vgi_ipc(&[[cut].as_slice(), &bytes].concat());
        vgi_connection(&bytes);
        vgi_http(&[[cut].as_slice(), &bytes].concat());
        vgi_external(&[[cut].as_slice(), &bytes].concat());
        vgi_token(&[[cut].as_slice(), &bytes].concat());
    }

    #[test]
    fn arbitrary_bytes_do_no_harm(input in prop::collection::vec(any::<u8>(), 0..200)) {
        vgi_ipc(&input);
        vgi_connection(&input);
        vgi_shm_header(&input);
        vgi_http(&input);
        vgi_external(&input);
        vgi_token(&input);
    }

    #[test]
    fn headers_that_are_nearly_right_do_no_harm(sizes in prop::collection::vec(1_u64..2_000, 0..8), changes in changes()) {
        let mut table = Table::new(HEADER + 4096).expect("large enough");
        for size in sizes {
            table.allocate(size);
        }
        vgi_shm_header(&changed(table.write(), changes));
    }
}

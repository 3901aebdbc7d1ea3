//! A bare hyper endpoint on one thread: what it answers is made before, so this is what HTTP alone costs.

use std::convert::Infallible;
use std::io::{self, Write as _};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::jobs::{JOB, chunks, poll};

/// Bytes of a piece of a download: what a value may have.
const PIECE: usize = 256 << 10;

/// Serves until it is killed.
pub fn serve(size: usize) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{{\"address\": \"{}\"}}", listener.local_addr()?);
        io::stdout().flush()?;
        let (found, none) = (Bytes::from(poll(&chunks(JOB, 1, 10, size), 11)), Bytes::from(poll(&[], 11)));
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (found, none) = (found.clone(), none.clone());
            tokio::spawn(async move {
                let service = service_fn(move |request| respond(request, found.clone(), none.clone()));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    })
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

async fn respond(request: Request<Incoming>, found: Bytes, none: Bytes) -> Result<Answer, hyper::Error> {
    let path = request.uri().path().to_owned();
    if let Some(bytes) = path.strip_prefix("/download/").and_then(|bytes| bytes.parse::<usize>().ok()) {
        let pieces = (0..bytes).step_by(PIECE).map(move |at| vec![b'x'; PIECE.min(bytes - at)]);
        let frames = pieces.map(|piece| Ok(Frame::data(Bytes::from(piece))));
        return Ok(Response::new(StreamBody::new(Pieces(frames)).boxed()));
    }
    let body = request.into_body().collect().await?.to_bytes();
    let answer = match path.as_str() {
        "/empty" => none,
        _ if body.is_empty() => found,
        _ => Bytes::from_static(b"{\"written\":10}"),
    };
    Ok(Response::new(Full::new(answer).boxed()))
}

/// An iterator as a stream that is always ready.
struct Pieces<I>(I);

impl<I: Iterator + Unpin> tokio_stream::Stream for Pieces<I> {
    type Item = I::Item;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<I::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}

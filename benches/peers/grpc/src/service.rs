//! The service as tonic's generator would write it: `rpc Send(stream Part) returns (stream Answer)`.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio_stream::{Stream, StreamExt as _};
use tonic::body::Body;
use tonic::client::Grpc as Client;
use tonic::codegen::{BoxFuture, Service, StdError};
use tonic::server::{Grpc, NamedService, StreamingService};
use tonic::transport::Channel;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

const PATH: &str = "/bench.Documents/Send";

/// A part of a document.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Part {
    #[prost(bytes = "bytes", tag = "1")]
    pub data: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub sha256: Bytes,
}

/// A part has come whole.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Answer {
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
}

/// The client's side.
pub async fn call(channel: &Channel, parts: impl Stream<Item = Part> + Send + 'static) -> Streaming<Answer> {
    let mut client = Client::new(channel.clone());
    client.ready().await.expect("a connection");
    let codec = ProstCodec::<Part, Answer>::default();
    let path = http::uri::PathAndQuery::from_static(PATH);
    client.streaming(Request::new(parts), path, codec).await.expect("a call").into_inner()
}

/// The server's side.
#[derive(Clone)]
pub struct Documents;

impl NamedService for Documents {
    const NAME: &'static str = "bench.Documents";
}

impl<B> Service<http::Request<B>> for Documents
where
    B: http_body::Body + Send + 'static,
    B::Error: Into<StdError> + Send + 'static,
{
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Infallible>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<B>) -> Self::Future {
        assert_eq!(request.uri().path(), PATH);
        Box::pin(async move {
            let mut grpc = Grpc::new(ProstCodec::<Answer, Part>::default());
            Ok(grpc.streaming(SendDocument, request).await)
        })
    }
}

struct SendDocument;

impl StreamingService<Part> for SendDocument {
    type Response = Answer;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Answer, Status>> + Send>>;
    type Future = BoxFuture<Response<Self::ResponseStream>, Status>;

    fn call(&mut self, request: Request<Streaming<Part>>) -> Self::Future {
        let answers = request.into_inner().map(|part| {
            let Part { data, sha256 } = part?;
            if Sha256::digest(&data)[..] != sha256[..] {
                return Err(Status::data_loss("the part is not what its checksum says"));
            }
            Ok(Answer { bytes: data.len() as u64 })
        });
        Box::pin(async move { Ok(Response::new(Box::pin(answers) as Self::ResponseStream)) })
    }
}

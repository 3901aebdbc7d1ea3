//! Storage in a folder of entities that refer to an object; see [`references`](crate::references).

use bytes::Bytes;
use penstock_pipestream::{self as core, ErrorCode, reference::MAX_MESSAGE};
use tokio::task::spawn_blocking;

use penstock_pipestream_net::port::Body;

use crate::folder::job::{Failure, Job};
use crate::folder::stored::StoredPayload;

impl Job {
    /// Store the message or the object. `allowed` is the result of the check of the entity's
    /// header.
    pub(super) async fn store_reference(self, body: Body, allowed: core::Result<()>) {
        let (session, attempt) = (self.session.clone(), self.attempt);
        if let Err(failure) = self.refer(body, allowed).await {
            session.fail(attempt, failure);
        }
    }

    async fn refer(mut self, body: Body, allowed: core::Result<()>) -> Result<(), Failure> {
        let message = message(body).await?;
        if let Some(check) = &mut self.check {
            check.update(&message)?;
        }
        self.verify()?;
        allowed?;
        let references = self.session.references();
        let (referred, object) = references.take(message.clone()).await?;
        match object {
            // The message's checksum is verified; count and hash it once more for the line.
            None => {
                self.check = Some(crate::references::Check::kept(&message));
                self = self.write_blocking(message).await?;
            }
            Some(mut object) => {
                self.check = Some(object.check());
                while let Some(piece) = object.next().await? {
                    self = self.write_blocking(piece).await?;
                }
            }
        }
        blocking(move || {
            let stored = StoredPayload { reference: Some(referred.into()), ..self.finish()? };
            self.session.stored(self.attempt, stored);
            Ok(())
        })
        .await
    }

    /// Write a piece off the IO thread.
    async fn write_blocking(mut self, piece: Bytes) -> Result<Self, Failure> {
        blocking(move || self.write([piece].into()).map(|()| self)).await
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Failure> + Send + 'static) -> Result<T, Failure> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error).into()))
}

/// Return the bytes of a message, or an error if it is too long.
async fn message(body: Body) -> Result<Bytes, Failure> {
    let bytes = match body {
        Body::Whole(bytes) => bytes,
        Body::Spooled(spool) => blocking(move || Ok(spool.read(MAX_MESSAGE + 1, 0)?)).await?,
        // A payload that arrives as a stream is longer than any message may be.
        Body::Stream(mut stream) => {
            stream.stop(ErrorCode::EntityTooLarge);
            return Err(too_long());
        }
    };
    if bytes.len() > MAX_MESSAGE { Err(too_long()) } else { Ok(bytes) }
}

fn too_long() -> Failure {
    Failure::Invalid(core::LimitError::ReferencePayload.into())
}

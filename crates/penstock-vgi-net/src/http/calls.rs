//! The calls of one client over HTTP: log messages are passed on, and pointers are followed.

use std::sync::Mutex;

use penstock_io::sync::lock;
use penstock_vgi::http::{ResponseContent, UploadUrl, read_upload_urls};
use penstock_vgi::{Answer, Batch, Metadata};

use super::client::{HttpClient, HttpStream};
use crate::client_calls::{Receiver, expect_batch};
use crate::{Check, Error, Result};

/// The calls of a service at a URL. Several threads may make them.
#[derive(Debug)]
pub struct HttpCalls {
    client: HttpClient,
    receiver: Receiver,
}

impl HttpCalls {
    /// Make calls with this client.
    pub const fn new(client: HttpClient, receiver: Receiver) -> Self {
        Self { client, receiver }
    }

    /// Return the client.
    pub const fn client(&self) -> &HttpClient {
        &self.client
    }

    /// Return the batch of a response, after passing on its log messages.
    fn batch(&self, content: ResponseContent, check: Check<'_>) -> Result<Batch> {
        for answer in content.answers {
            match answer {
                Answer::Log(log) => self.receiver.log(&log)?,
                answer @ (Answer::Batch(_) | Answer::Failed(_) | Answer::End) => {
                    return self.receiver.receive(expect_batch(answer)?, check);
                }
            }
        }
        Err(Error::Unanswered)
    }

    /// Call a unary method.
    pub fn call(&self, method: &str, params: Batch, metadata: Metadata, check: Check<'_>) -> Result<Batch> {
        let content = self.client.call(method, params, metadata, &mut *check)?;
        self.batch(content, check)
    }

    /// Open a stream.
    pub fn open(
        &self,
        method: &str,
        params: Batch,
        metadata: Metadata,
        header: bool,
        check: Check<'_>,
    ) -> Result<HttpStream> {
        let mut stream = self.client.open(method, params, metadata, header, &mut *check)?;
        stream.take_logs().iter().try_for_each(|log| self.receiver.log(log))?;
        // The failure is already here, so the stream need not be read for it.
        if let Some(failure) = stream.failure() {
            return Err(Error::Failed(Box::new(failure.clone())));
        }
        if let Some(header) = stream.header.take() {
            stream.header = Some(self.receiver.receive(header, check)?);
        }
        Ok(stream)
    }

    /// Return the next batch of a stream: the answer to an input, or, for a producer, without one.
    /// Return `None` at the end.
    pub fn next(
        &self,
        stream: &Mutex<HttpStream>,
        mut input: Option<Batch>,
        check: Check<'_>,
    ) -> Result<Option<Batch>> {
        loop {
            let answer = self.client.next(&mut lock(stream), input.take(), &mut *check)?;
            match answer {
                Answer::Log(log) => self.receiver.log(&log)?,
                Answer::End => return Ok(None),
                Answer::Batch(batch) => {
                    let mut batch = self.receiver.receive(batch, check)?;
                    lock(stream).found_token(&mut batch);
                    return Ok(Some(batch));
                }
                answer @ Answer::Failed(_) => return expect_batch(answer).map(Some),
            }
        }
    }

    /// Return URLs for uploading requests.
    pub fn upload_urls(&self, count: i64, check: Check<'_>) -> Result<Vec<UploadUrl>> {
        let content = self.client.upload_urls(count, &mut *check)?;
        Ok(read_upload_urls(&self.batch(content, check)?)?)
    }
}

//! PDFs, read by pypdfium2 in a child process that `python/penstock/_pdf.py` manages. This module
//! writes the PDF into a file for the child and takes its answers; it holds the interpreter's lock
//! only during the calls.

use std::collections::BTreeMap;
use std::io;

use penstock_documents::{PdfLimits, PdfPages, Source};
use pyo3::intern;
use pyo3::prelude::*;
use tempfile::NamedTempFile;

use super::interrupts::Interrupts;
use crate::pipestream::waiting::attached;

mod python {
    pyo3::import_exception!(penstock._pdf, PdfError);
}

/// Open the PDF in `source`, or return why it cannot be opened.
pub(crate) fn open(
    source: &mut dyn Source,
    limits: &PdfLimits,
    interrupts: &Interrupts,
) -> Result<Box<dyn PdfPages>, String> {
    let file = named_copy(source).map_err(|error| format!("cannot copy the PDF for its reader: {error}"))?;
    let opened = attached(|py| {
        let arguments =
            (file.path(), limits.max_memory, limits.max_text, limits.max_pages, limits.page_time.as_secs_f64());
        let pages = py.import(intern!(py, "penstock._pdf"))?.call_method1(intern!(py, "open_pdf"), arguments)?;
        let page_count = pages.getattr(intern!(py, "page_count"))?.extract()?;
        let metadata = pages.getattr(intern!(py, "metadata"))?.extract()?;
        Ok((pages.unbind(), page_count, metadata))
    });
    let (pages, page_count, metadata) = opened.map_err(|error| reason(error, interrupts))?;
    Ok(Box::new(Pages { pages, page_count, metadata, interrupts: interrupts.clone(), _file: file }))
}

fn named_copy(source: &mut dyn Source) -> io::Result<NamedTempFile> {
    let mut file = NamedTempFile::with_prefix("penstock-")?;
    io::copy(source, &mut file)?;
    Ok(file)
}

/// Return the text of a `PdfError`. Keep any other error, such as Ctrl-C or a bug, to be raised
/// later.
fn reason(error: PyErr, interrupts: &Interrupts) -> String {
    attached(|py| {
        let text = error.value(py).to_string();
        if !error.is_instance_of::<python::PdfError>(py) {
            interrupts.keep(error);
        }
        text
    })
}

/// The pages of a PDF that a child process has open.
struct Pages {
    pages: Py<PyAny>,
    page_count: u32,
    metadata: BTreeMap<String, String>,
    interrupts: Interrupts,
    /// The file that the child reads until it is told to close.
    _file: NamedTempFile,
}

impl PdfPages for Pages {
    fn page_count(&self) -> u32 {
        self.page_count
    }

    fn next_page(&mut self) -> Option<Result<String, String>> {
        if self.interrupts.pending() {
            return None;
        }
        let page = attached(|py| -> PyResult<Option<String>> {
            self.pages.bind(py).call_method0(intern!(py, "next_page"))?.extract()
        });
        page.map_err(|error| reason(error, &self.interrupts)).transpose()
    }

    fn metadata(&self) -> BTreeMap<String, String> {
        self.metadata.clone()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // A PDF that was not read to its end still has its child. An error cannot be returned here,
        // and closing kills a child that does not answer.
        let closed = Python::try_attach(|py| self.pages.bind(py).call_method0(intern!(py, "close")).map(|_| ()));
        if let Some(Err(error)) = closed {
            tracing::debug!(%error, "closing a PDF");
        }
    }
}

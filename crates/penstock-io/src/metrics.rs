//! `--metrics`: the counters of a server for Prometheus, and its health, for every protocol.
//!
//! Counting costs one atomic addition; all other work happens at a scrape.

mod endpoint;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

pub use self::endpoint::Endpoint;

/// A server with metrics.
pub trait Source: fmt::Debug + Send + Sync + 'static {
    /// Write the metrics. Called for each scrape, on the IO thread, so it must not block.
    fn write(&self, page: &mut Page<'_>) -> fmt::Result;

    /// Return whether the server accepts work.
    fn is_healthy(&self) -> bool;

    /// Return the reason for which a server that was not stopped accepts no work.
    fn failure(&self) -> Option<String> {
        None
    }
}

/// The metrics of one scrape.
#[derive(Debug)]
pub struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    /// Write a value that only grows.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(metric)
    }

    /// Write one counter for each value of a label.
    pub fn counters<'v>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (&'v str, u64)>,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (of, value) in values {
            ConstCounter::new(value).encode(metric.encode_family(&[(label, of)])?)?;
        }
        Ok(())
    }

    /// Write a value that grows and shrinks.
    pub fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(metric)
    }

    /// Write a distribution of durations.
    pub fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Histogram)?;
        let (sum, counts) = histogram.read();
        let buckets: Vec<_> = Histogram::BOUNDS.into_iter().chain([f64::INFINITY]).zip(counts).collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }
}

/// A histogram of durations, updated without a lock.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [AtomicU64; Self::BOUNDS.len() + 1],
    micros: AtomicU64,
}

impl Histogram {
    /// The upper bounds in seconds.
    const BOUNDS: [f64; 8] = [0.0005, 0.001, 0.002_5, 0.01, 0.05, 0.25, 1.0, 5.0];

    /// Count a duration.
    pub fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let index = Self::BOUNDS.iter().position(|bound| seconds <= *bound).unwrap_or(Self::BOUNDS.len());
        if let Some(count) = self.counts.get(index) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    fn read(&self) -> (f64, impl Iterator<Item = u64>) {
        let micros = Duration::from_micros(self.micros.load(Ordering::Relaxed));
        (micros.as_secs_f64(), self.counts.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}

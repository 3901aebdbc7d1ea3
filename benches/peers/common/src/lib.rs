//! What all programs of the bench have in common: arguments, the other process, what a process takes, JSON.
//!
//! Every program is both ends: the one that is started sends and prints one JSON object; it starts itself a second
//! time with `receive` to have the other end in a process of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// `program COMMAND --name value ...`
#[derive(Debug, Clone)]
pub struct Arguments {
    pub command: String,
    named: BTreeMap<String, String>,
}

impl Arguments {
    /// Those of this process.
    pub fn read() -> Self {
        let mut words = std::env::args().skip(1);
        let command = words.next().unwrap_or_default();
        let mut named = BTreeMap::new();
        while let Some(name) = words.next() {
            let name = name.strip_prefix("--").unwrap_or_else(|| panic!("{name} is no option")).to_owned();
            named.insert(name.clone(), words.next().unwrap_or_else(|| panic!("--{name} wants a value")));
        }
        Self { command, named }
    }

    /// The value of an option, or its default.
    pub fn get<T: FromStr>(&self, name: &str, default: T) -> T {
        self.named.get(name).map_or(default, |value| value.parse().unwrap_or_else(|_| panic!("--{name} {value}?")))
    }

    /// Sets an option, for the other process as well.
    pub fn set(&mut self, name: &str, value: &str) {
        self.named.insert(name.to_owned(), value.to_owned());
    }

    fn words(&self) -> impl Iterator<Item = String> {
        self.named.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()])
    }
}

/// The receiving process. Killed when this is dropped.
#[derive(Debug)]
pub struct Receiver {
    child: Child,
    /// What it says of itself in its first line.
    pub hello: Value,
}

impl Receiver {
    /// Starts this program again with the same options.
    pub fn start(arguments: &Arguments) -> Self {
        let program = std::env::current_exe().expect("this program has a path");
        let mut child = Command::new(program)
            .arg("receive")
            .args(arguments.words())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the receiver starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("the receiver speaks");
        let hello = serde_json::from_str(&line).unwrap_or_else(|_| panic!("the receiver says {line:?}"));
        Self { child, hello }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn text(&self, name: &str) -> &str {
        self.hello[name].as_str().unwrap_or_else(|| panic!("the receiver says no {name}"))
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says who listens where, for [`Receiver::hello`].
pub fn say(hello: &Value) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{hello}").and_then(|()| out.flush()).expect("stdout is open");
}

/// Ends this process when the one that started it is gone.
pub fn end_with_parent() {
    std::thread::spawn(|| {
        let mut line = String::new();
        while std::io::stdin().read_line(&mut line).is_ok_and(|count| count > 0) {}
        std::process::exit(0);
    });
}

/// CPU time that a process has taken so far.
fn cpu(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).expect("a running process");
    // The name in parentheses may hold blanks; utime and stime are the 12th and 13th field after it.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields[11..13].iter().map(|field| field.parse::<u64>().expect("a number")).sum();
    ticks as f64 / 100.0
}

/// A value of `/proc/PROCESS/status`, in MiB.
fn memory(process: u32, name: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a running process");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a known name");
    line.trim_start_matches(':').split_whitespace().next().expect("a number").parse::<f64>().expect("a number") / 1024.0
}

/// Both processes at one moment.
#[derive(Debug)]
pub struct Mark {
    at: Instant,
    receiver: u32,
    cpu: [f64; 2],
    peak: [f64; 2],
}

impl Mark {
    pub fn now(receiver: &Receiver) -> Self {
        let (ours, theirs) = (std::process::id(), receiver.id());
        for process in [ours, theirs] {
            // "5" sets the peak to what is used now.
            let _ = fs::write(format!("/proc/{process}/clear_refs"), "5");
        }
        let peak = [ours, theirs].map(|process| memory(process, "VmRSS"));
        Self { at: Instant::now(), receiver: theirs, cpu: [ours, theirs].map(cpu), peak }
    }

    /// What `count` entities with `bytes` of payload altogether have taken since.
    pub fn report(&self, count: u64, bytes: u64) -> Value {
        let seconds = self.at.elapsed().as_secs_f64();
        let processes = [std::process::id(), self.receiver];
        let cpu: Vec<f64> = processes.iter().zip(self.cpu).map(|(process, before)| cpu(*process) - before).collect();
        let grown: Vec<f64> =
            processes.iter().zip(self.peak).map(|(process, before)| memory(*process, "VmHWM") - before).collect();
        json!({
            "count": count,
            "seconds": seconds,
            "per_second": count as f64 / seconds,
            "mb_per_second": bytes as f64 / seconds / 1e6,
            "sender_cpu_us": cpu[0] * 1e6 / count as f64,
            "receiver_cpu_us": cpu[1] * 1e6 / count as f64,
            "sender_growth_mib": grown[0],
            "receiver_growth_mib": grown[1],
        })
    }
}

/// Median, 99th percentile and the like of round trips, in microseconds.
pub fn percentiles(mut samples: Vec<Duration>) -> Value {
    samples.sort_unstable();
    let at = |share: f64| {
        let index = ((samples.len() as f64 - 1.0) * share).round() as usize;
        samples.get(index).map_or(0.0, |sample| sample.as_secs_f64() * 1e6)
    };
    json!({ "samples": samples.len(), "p50_us": at(0.5), "p90_us": at(0.9), "p99_us": at(0.99), "max_us": at(1.0) })
}

/// Bytes that no compression or cache makes anything of, the same in every run.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

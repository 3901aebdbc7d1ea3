//! The limit: what quinn alone can do on this machine with the same bytes, in the same two processes.
//!
//! ```text
//! limit streams --size N --count N    entities of N bytes: header, SHA-256 on both sides, PENDING and COMPLETE
//! limit bare --size N --count N       streams of N bytes and nothing else
//! limit control --size N --count N    round trips on stream 0 while entities of N bytes are sent
//! limit header --size N               the header of entity 1, in hex
//! ```
//!
//! Each takes `--mtu` (largest UDP payload), `--warmup` (entities before the clock starts), `--tasks` (streams that
//! the sender writes at a time), `--hash io|own` (hash on the IO thread or on a thread of its own).

mod frames;
mod receiver;
mod sender;
mod transport;

use peers_common::Arguments;

fn main() {
    let arguments = Arguments::read();
    match arguments.command.as_str() {
        "receive" => receiver::run(&arguments),
        "streams" | "bare" | "control" => println!("{}", sender::run(&arguments)),
        "header" => println!("{}", frames::hex(&frames::header(1, &vec![0; arguments.get("size", 1024)]))),
        other => panic!("{other:?} is no command"),
    }
}

/// A runtime like penstock's: one thread.
fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

//! The same work by penstock's sessions: announcements, statuses, cursor and manifest on.
//!
//! ```text
//! ours streams --size N --count N      entities of N bytes
//! ours control --size N --count N      CHECKPOINT round trips while entities of N bytes are sent
//! ours document --size N --part N      documents: one entity each, or with `--part` a parent and parts of N bytes
//! ours flat --count N --repeat N       sessions of N entities, one after another
//! ours killed --size N --count N       entities of N bytes; in the middle of them the receiver is killed and started again
//! ```
//!
//! Each takes `--mtu` (largest UDP payload; 0: the default profile), `--warmup` (entities before the clock starts),
//! `--batch` (entities handed over at a time), `--layers` (1, or 2), `--survive` (seconds that a session of layer 2 goes on
//! without a connection; 0: it ends), `--store` (a folder: the receiver is a sink in there), `--state` (1: its sessions are
//! kept in there, too).

mod killed;
mod receiver;
mod sender;

use peers_common::Arguments;

fn main() {
    let arguments = Arguments::read();
    match arguments.command.as_str() {
        "receive" => receiver::run(&arguments),
        "killed" => println!("{}", killed::run(arguments)),
        "streams" | "control" | "document" | "flat" => println!("{}", sender::run(&arguments)),
        other => panic!("{other:?} is no command"),
    }
}

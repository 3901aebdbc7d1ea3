//! `proto-gen SET OUT`: writes a Rust file for each package of the descriptor set SET into the folder OUT.
//!
//! Part of scripts/regenerate-proto.sh, which also makes the set.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;
use prost_types::FileDescriptorSet;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let (Some(set), Some(out)) = (arguments.next(), arguments.next()) else {
        return Err("usage: proto-gen SET OUT".into());
    };
    let set = FileDescriptorSet::decode(std::fs::read(set)?.as_slice())?;
    // Ordered maps make the encoding deterministic; bytes are slices of what was received, not copies.
    // What holds wrapped keys must not be shown by chance (section 10.9): the crate says how it is shown.
    let secret = [".pipestream.protocol.v1.FileStorageReference", ".pipestream.protocol.v1.EncryptionMetadata"];
    prost_build::Config::new().btree_map(["."]).bytes(["."]).skip_debug(secret).out_dir(out).compile_fds(set)?;
    Ok(())
}

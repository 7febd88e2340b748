//! Turns our `.proto` text into descriptors and Rust code, without a system compiler.
#![expect(clippy::disallowed_methods, reason = "a build script is told where to write by its environment")]

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message as _;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["openshell.proto", "workspace.proto"], ["proto"])?;
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo gives no OUT_DIR")?);
    fs::write(out.join("descriptors.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure().compile_fds(descriptors)?;
    Ok(())
}

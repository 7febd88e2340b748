//! Turns the options of `gateway serve` into a gateway that runs until it is told to end.
//! It refuses to know what its clients do with it.

use driver::ServeConfig;
use tokio_util::sync::CancellationToken;

use super::args::ServeArgs;
use super::error::{CliError, absolute};
use super::exit::Exit;
use super::run::{print, runtime};
use crate::sys::fs::read_bounded;
use crate::sys::signal::Interrupts;

/// The most that a token file holds, in bytes.
const TOKEN_MAX: u64 = 4096;

/// Serves the gateway's API until SIGINT or SIGTERM.
///
/// # Errors
/// When a layer, the socket or the token cannot be had.
pub fn serve(args: &ServeArgs) -> Result<Exit, CliError> {
    let config = ServeConfig {
        state_dir: absolute(&args.state_dir)?,
        socket: args.socket.as_deref().map(absolute).transpose()?,
        tcp: args.tcp.map(|address| Ok::<_, CliError>((address, token(args)?))).transpose()?,
    };
    runtime()?.block_on(async {
        let stop = CancellationToken::new();
        let mut interrupts =
            Interrupts::listen().map_err(|source| CliError::Io { doing: "listen to signals", source })?;
        let serving = driver::gateway::serve(config, stop.clone(), tell);
        tokio::pin!(serving);
        loop {
            tokio::select! {
                served = &mut serving => return served.map(|()| Exit::Ok).map_err(CliError::Gateway),
                _ = interrupts.next() => stop.cancel(),
            }
        }
    })
}

/// Where it listens and what its sandboxes have, once it does.
fn tell(gateway: &driver::Gateway) {
    let mut text = String::new();
    for layer in gateway.layers() {
        text.push_str(&format!("layer {layer}\n"));
    }
    text.push_str(&format!("listening on unix:{}\n", gateway.socket().display()));
    if let Some(address) = gateway.tcp() {
        text.push_str(&format!("listening on {address}\n"));
    }
    // Who does not read it can still reach the socket.
    let _ = print(&text);
}

/// The bearer token: the first line of its file.
fn token(args: &ServeArgs) -> Result<String, CliError> {
    let path = args.token_file.as_deref().unwrap_or(std::path::Path::new(""));
    let bytes = read_bounded(path, TOKEN_MAX).map_err(CliError::Token)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

//! Turns the options of `gateway serve` into a gateway that runs until it is told to end.
//! It refuses to know what its clients do with it.

use std::path::Path;
use std::sync::Arc;

use broker::limits::Limits;
use driver::{Gateway, ServeConfig};
use policy::egress::Egress;

use super::args::ServeArgs;
use super::error::{CliError, absolute};
use super::exit::Exit;
use super::run::{print, runtime};
use crate::egress::{AUDIT_FILE, Broker, Canary, Tokens, launch, try_canary};
use crate::run::begin::RunError;
use crate::sys::env::Environment;
use crate::sys::fs::read_bounded;
use crate::sys::signal::Interrupts;

/// The most that a token file holds, in bytes.
const TOKEN_MAX: u64 = 4096;

/// Serves the gateway's API until SIGINT or SIGTERM. Sandboxes with network policies get a broker, which is tried first.
///
/// # Errors
/// When a layer, the socket, the token or the broker cannot be had, or the self-test's canary gets out.
pub fn serve(args: &ServeArgs) -> Result<Exit, CliError> {
    let config = ServeConfig {
        state_dir: absolute(&args.state_dir)?,
        socket: args.socket.as_deref().map(absolute).transpose()?,
        tcp: args.tcp.map(|address| Ok::<_, CliError>((address, token(args)?))).transpose()?,
    };
    let runtime = runtime()?;
    // The gateway has the broker, which goes after its last sandbox: until then it writes what they did.
    let broker = Arc::new(broker(&config.state_dir)?);
    let gateway = Gateway::start(config, Some(broker.clone())).map_err(CliError::Gateway)?;
    let served = runtime.block_on(until_told(&gateway));
    let stopped = gateway.stop().map_err(CliError::Gateway);
    drop(broker);
    served.and(stopped).map(|()| Exit::Ok)
}

/// Whoever answers for the ways out of the gateway's sandboxes.
fn broker(state_dir: &Path) -> Result<Broker, CliError> {
    let env = Environment::of_this_process();
    let launch = launch(&env, Limits::default(), Vec::new()).map_err(RunError::Proxy)?;
    Ok(Broker::start(launch, state_dir.join(AUDIT_FILE), None, Tokens::default())
        .map_err(RunError::Egress)?)
}

/// Tries the canary, tells where the gateway is, and waits for its end.
async fn until_told(gateway: &Gateway) -> Result<(), CliError> {
    let mut interrupts =
        Interrupts::listen().map_err(|source| CliError::Io { doing: "listen to signals", source })?;
    let client = driver::Client::unix(gateway.socket()).await.map_err(RunError::Gateway)?;
    let egress = Egress::new(Vec::new()).document();
    let canary = Canary { egress, limits: driver::Limits::default(), certificates: None, own: None };
    try_canary(&client, canary).await.map_err(RunError::SelfTest)?;
    tell(gateway);
    tokio::select! {
        () = gateway.stopped() => {}
        _ = interrupts.next() => {}
    }
    Ok(())
}

/// Where it listens and what its sandboxes have, once it does.
fn tell(gateway: &Gateway) {
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
    let path = args.token_file.as_deref().unwrap_or(Path::new(""));
    let bytes = read_bounded(path, TOKEN_MAX).map_err(CliError::Token)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

//! Turns commands of an operator into requests to a live run, and its answers into text (contract §7.1).
//! It refuses to know what the run does with them.

pub mod args;
pub mod send;
pub mod status;
pub mod tail;

use std::path::PathBuf;

use args::PlaceArgs;

use super::error::CliError;
use super::resumed::state_of;
use crate::control::dial::Place;
use crate::sys::fs::read_bounded;

/// The most that a token file holds, in bytes.
const TOKEN_MAX: u64 = 4096;

/// Where the run is to be spoken to.
fn place(args: &PlaceArgs) -> Result<Place, CliError> {
    match &args.control_addr {
        Some(address) => Ok(Place::Tcp(*address, token(args.control_token_file.clone())?)),
        None => Ok(Place::State(state_of(&args.state)?)),
    }
}

/// The token: the first line of its file.
///
/// # Errors
/// When the file cannot be read.
pub(super) fn token(file: Option<PathBuf>) -> Result<String, CliError> {
    let bytes = read_bounded(&file.unwrap_or_default(), TOKEN_MAX).map_err(CliError::Token)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

//! Turns this process's environment into what a broker is told of the host's own way out.
//! It refuses to know which sandboxes it will serve.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use broker::launch::{Launch, Parent, ParentError, Secrets};
use broker::limits::Limits;

use crate::sys::env::Environment;

/// What a broker's child is told: the host's proxy and `NO_PROXY`, what bounds traffic, and what no record may show.
///
/// # Errors
/// When the host's proxy is none that can be used.
pub fn launch(env: &Environment, limits: Limits, secrets: Vec<String>) -> Result<Launch, ParentError> {
    let text = |names: [&str; 2]| {
        let values = names.into_iter().filter_map(|name| env.value(name)).filter_map(|value| value.to_str());
        values.map(str::to_owned).find(|value| !value.is_empty())
    };
    let parent = text(["https_proxy", "HTTPS_PROXY"]);
    let parent = parent.map(|url| Parent::from_url(&url, |bytes| STANDARD.encode(bytes))).transpose()?;
    let no_proxy = text(["no_proxy", "NO_PROXY"]).unwrap_or_default();
    Ok(Launch { limits, parent, no_proxy, secrets: Secrets(secrets), ..Launch::default() })
}

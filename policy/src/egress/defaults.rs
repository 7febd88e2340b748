//! Turns the engine's built-in reach into data: forges, package index, model endpoints, agent programs (contract §6.1).
//! It refuses to know who inherits it.

/// One built-in endpoint and the group that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Builtin {
    /// `forge`, `pypi`, `vertex` or `anthropic`.
    pub group: &'static str,
    /// In the manifest's grammar.
    pub endpoint: &'static str,
}

const fn row(group: &'static str, endpoint: &'static str) -> Builtin {
    Builtin { group, endpoint }
}

/// What every sandbox reaches unless its manifest opts out. Forges take pushes and PyPI takes only reads, but inside TLS a
/// broker that does not end it sees neither, so the access that works is `full`.
pub const ENDPOINTS: [Builtin; 19] = [
    row("forge", "github.com:443:full"),
    row("forge", "api.github.com:443:full"),
    row("forge", "codeload.github.com:443:full"),
    row("forge", "raw.githubusercontent.com:443:full"),
    row("forge", "objects.githubusercontent.com:443:full"),
    row("forge", "release-assets.githubusercontent.com:443:full"),
    row("forge", "github-cloud.githubusercontent.com:443:full"),
    row("forge", "gitlab.com:443:full"),
    row("forge", "codeberg.org:443:full"),
    row("pypi", "pypi.org:443:full"),
    row("pypi", "files.pythonhosted.org:443:full"),
    row("vertex", "oauth2.googleapis.com:443:full"),
    row("vertex", "aiplatform.googleapis.com:443:full"),
    row("vertex", "*-aiplatform.googleapis.com:443:full"),
    row("vertex", "aiplatform.us.rep.googleapis.com:443:full"),
    row("vertex", "aiplatform.eu.rep.googleapis.com:443:full"),
    row("anthropic", "api.anthropic.com:443:full"),
    row("anthropic", "console.anthropic.com:443:full"),
    row("anthropic", "platform.claude.com:443:full"),
];

/// The agent programs, with the helpers that forges and the index are reached by.
pub const BINARIES: [&str; 14] = [
    "/usr/local/bin/claude",
    "/usr/bin/claude",
    "/usr/local/bin/codex",
    "/usr/bin/codex",
    "/usr/local/bin/opencode",
    "/usr/bin/opencode",
    "/usr/local/bin/gemini",
    "/usr/bin/gemini",
    "/usr/bin/git",
    "/usr/bin/gh",
    "/usr/bin/curl",
    "/usr/bin/python3",
    "/usr/local/bin/python3",
    "/usr/local/bin/uv",
];

//! Turns the names of layers into the set that a test leaves out.
//! In what is shipped it refuses every name; the set is always empty there.

/// One layer that a test may take away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    /// The allow list of the host's files.
    View,
    /// Read-only binds.
    ReadOnly,
    /// The seccomp filter.
    Seccomp,
    /// Landlock.
    Landlock,
    /// Giving up the capabilities of the user namespace.
    Capabilities,
    /// `no_new_privs`.
    NoNewPrivileges,
    /// Limits.
    Limits,
    /// The network namespace.
    Network,
    /// The overlay: the workspace is copied, as where none can be mounted.
    Overlay,
}

/// The layers that are left out.
#[derive(Debug, Default)]
pub(crate) struct Weaken(Vec<Layer>);

impl Weaken {
    /// Reads the names. In a build without the feature, any name is an error.
    pub(crate) fn parse(names: &[String]) -> Result<Self, String> {
        names.iter().map(|name| layer(name)).collect::<Result<_, _>>().map(Self)
    }

    /// Whether this layer is to be left out.
    pub(crate) fn off(&self, layer: Layer) -> bool {
        self.0.contains(&layer)
    }
}

#[cfg(feature = "weaken")]
fn layer(name: &str) -> Result<Layer, String> {
    Ok(match name {
        "view" => Layer::View,
        "read-only" => Layer::ReadOnly,
        "seccomp" => Layer::Seccomp,
        "landlock" => Layer::Landlock,
        "capabilities" => Layer::Capabilities,
        "no-new-privileges" => Layer::NoNewPrivileges,
        "limits" => Layer::Limits,
        "network" => Layer::Network,
        "overlay" => Layer::Overlay,
        other => return Err(format!("leave out the layer {other}: there is none of this name")),
    })
}

#[cfg(not(feature = "weaken"))]
fn layer(name: &str) -> Result<Layer, String> {
    Err(format!("leave out the layer {name}: this build always has all of them"))
}

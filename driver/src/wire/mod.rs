//! Turns our `.proto` text into types, and those into the driver's own.
//! It refuses to know sockets and retries; nothing outside this module and `client` names a prost type.

/// Everything generated from `proto/openshell.proto` and the files it imports, dialect 0.1.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    unused_qualifications
)]
pub(crate) mod openshell {
    pub(crate) mod v1 {
        tonic::include_proto!("openshell.v1");
    }
    pub(crate) mod datamodel {
        pub(crate) mod v1 {
            tonic::include_proto!("openshell.datamodel.v1");
        }
    }
    pub(crate) mod sandbox {
        pub(crate) mod v1 {
            tonic::include_proto!("openshell.sandbox.v1");
        }
    }
}

/// Everything generated from `proto/workspace.proto`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    unused_qualifications
)]
pub(crate) mod workspace {
    tonic::include_proto!("crucible.gateway.v1");
}

pub mod config;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The version of OpenShell's API that both halves speak; `Health` answers it.
pub const DIALECT: &str = "0.1.5";

/// The serialized `FileDescriptorSet` of our text, for comparison with another implementation's.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// The one workspace scope that the embedded gateway has.
pub(crate) fn default_scope() -> Option<openshell::datamodel::v1::WorkspaceSelector> {
    use openshell::datamodel::v1::{WorkspaceSelector, workspace_selector::Selector};
    Some(WorkspaceSelector { selector: Some(Selector::Workspace("default".to_owned())) })
}

/// A point of time as the wire has it; before the epoch it is the epoch.
pub(crate) fn timestamp(at: SystemTime) -> prost_types::Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    prost_types::Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or(0),
    }
}

/// A span of time as the wire has it.
pub(crate) fn wire_duration(span: Duration) -> prost_types::Duration {
    prost_types::Duration {
        seconds: i64::try_from(span.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(span.subsec_nanos()).unwrap_or(0),
    }
}

/// A span of time from the wire; `None` for zero or less, which means no limit.
pub(crate) fn span(wire: prost_types::Duration) -> Option<Duration> {
    Duration::try_from(wire).ok().filter(|span| !span.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_spans_survive_the_wire() {
        let span_in = Duration::new(90, 500);
        assert_eq!(span(wire_duration(span_in)), Some(span_in));
        assert_eq!(span(wire_duration(Duration::ZERO)), None);
        assert_eq!(timestamp(UNIX_EPOCH + span_in).seconds, 90);
    }
}

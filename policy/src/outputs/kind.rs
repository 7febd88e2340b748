//! Turns a word of `[outputs.<kind>]` into one of the seven kinds of writes that there are (N4).
//! It refuses to know what a pack declares about one.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What a kind of write is addressed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// `owner/repo`.
    Repository,
    /// `PROJECT-NUMBER`, or `owner/repo#number`.
    TrackerItem,
    /// The name of a channel, with or without `#`.
    Chat,
    /// `registry/path[:tag][@sha256:digest]`.
    Registry,
    /// `namespace/name`.
    Deployment,
    /// Nothing.
    Nothing,
}

impl Addresses {
    /// How an address is written, for a person.
    pub fn shape(self) -> &'static str {
        match self {
            Self::Repository => "owner/repo",
            Self::TrackerItem => "PROJECT-NUMBER or owner/repo#number",
            Self::Chat => "the name of a channel",
            Self::Registry => "registry/path[:tag][@sha256:digest]",
            Self::Deployment => "namespace/name",
            Self::Nothing => "nothing",
        }
    }
}

macro_rules! kinds {
    ($($variant:ident $token:literal $addresses:ident $count:literal $default:literal)+) => {
        /// A kind of write to the outside. The vocabulary is closed, and a retired token is never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum Kind {
            $(#[doc = concat!("`", $token, "`")] #[serde(rename = $token)] $variant,)+
        }

        impl Kind {
            /// Every kind, in the order of disclosures.
            pub const ALL: [Self; 7] = [$(Self::$variant),+];
            /// Their tokens, in the same order.
            pub const TOKENS: [&'static str; 7] = [$($token),+];

            /// The stable token.
            pub fn token(self) -> &'static str {
                match self { $(Self::$variant => $token,)+ }
            }

            /// What it is addressed to.
            pub fn addresses(self) -> Addresses {
                match self { $(Self::$variant => Addresses::$addresses,)+ }
            }

            /// How many writes a run has whose pack declares nothing.
            pub fn default_count(self) -> u32 {
                match self { $(Self::$variant => $count,)+ }
            }

            /// What its default target is, for a person.
            pub fn default_target(self) -> &'static str {
                match self { $(Self::$variant => $default,)+ }
            }
        }
    };
}

kinds! {
    DraftPr "draft-pr" Repository 2 "the publish repository of the run"
    TrackerComment "tracker-comment" TrackerItem 2 "the item the run was started for"
    ChatMessage "chat-message" Chat 8 "the operator channel"
    ImagePush "image-push" Registry 100 "the run's registry"
    Deploy "deploy" Deployment 100 "the run's namespace/name"
    WorkflowDispatch "workflow-dispatch" Repository 20 "the build repository"
    GpuCapture "gpu-capture" Nothing 100 "none"
}

impl Kind {
    /// Reads a token exactly as it is written.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.token() == text)
    }

    /// Whether it has a target at all.
    pub fn is_addressed(self) -> bool {
        self.addresses() != Addresses::Nothing
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

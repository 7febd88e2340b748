//! Turns a refused write into a stable token and a sentence that agent and operator both may read.
//! It refuses to know which write it was.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! refusals {
    ($($variant:ident $token:literal $public:literal)+) => {
        /// Why a write was refused: the `reason` of an `output_refused` row. A token is never reused for something else.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Refused {
            $(#[doc = $public] #[serde(rename = $token)] $variant,)+
        }

        impl Refused {
            /// Every reason, in the order of the reference.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The stable token.
            pub fn token(self) -> &'static str {
                match self { $(Self::$variant => $token,)+ }
            }

            /// What it means.
            pub fn public(self) -> &'static str {
                match self { $(Self::$variant => $public,)+ }
            }
        }
    };
}

refusals! {
    OverCount "over-count" "the run has no write of this kind left"
    OutsideScope "outside-scope" "the target is outside of what the pack declares"
    NotAnAddress "not-an-address" "the target is not written as an address of this kind"
    NoTarget "no-target" "no target was named, and the bound names no single one"
    TargetUnresolved "target-unresolved" "the pack declares no target for this kind, and this run has no default one"
    ParamMissing "param-missing" "the target is bound to a parameter that the run was not given"
    ParamMismatch "param-mismatch" "the target is not the value of the parameter that it is bound to"
    Unaddressed "unaddressed" "a target was named for a kind that is addressed to nothing"
    KeyReused "key-reused" "the idempotency key was used before, with other arguments"
    OutcomeUnknown "outcome-unknown" "the outcome of the earlier write with this key is not known, so it is not repeated"
    TooFast "too-fast" "this tool is called faster than its pace allows"
    CallCeiling "call-ceiling" "the run has no call of a tool left"
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

//! Turns declared outputs and what is known of the run into one bound for each kind, and a wanted write into yes or no.
//! It refuses to know how many writes there were: it is told.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::kind::Kind;
use super::reason::Refused;
use super::target::{OPERATOR, Scope, Target, address};

/// The version of [`Document`].
pub const VERSION: u32 = 1;

/// What a pack declares about one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// How many writes of a run.
    pub count: u32,
    /// Where they go; absent for a kind that is addressed to nothing.
    pub target: Option<Target>,
}

/// Why a declaration is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DeclareError {
    /// A kind with an address has no target.
    #[error("`{0}` needs a target")]
    NeedsTarget(Kind),
    /// A kind without an address has one.
    #[error("`{0}` is addressed to nothing and takes no target")]
    TakesNone(Kind),
}

/// The kinds that a pack declares; each is whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared(BTreeMap<Kind, Declaration>);

impl Declared {
    /// Adds what is declared about a kind.
    ///
    /// # Errors
    /// A target where none belongs, or none where one does.
    pub fn declare(&mut self, kind: Kind, declaration: Declaration) -> Result<(), DeclareError> {
        match (kind.is_addressed(), &declaration.target) {
            (true, None) => Err(DeclareError::NeedsTarget(kind)),
            (false, Some(_)) => Err(DeclareError::TakesNone(kind)),
            _ => {
                self.0.insert(kind, declaration);
                Ok(())
            }
        }
    }

    /// What is declared about a kind.
    pub fn of(&self, kind: Kind) -> Option<&Declaration> {
        self.0.get(&kind)
    }

    /// Every parameter that a target is bound to, with its kind.
    pub fn params(&self) -> impl Iterator<Item = (Kind, &str)> {
        self.0.iter().filter_map(|(kind, declaration)| match &declaration.target {
            Some(Target::Open { param: Some(param), .. }) => Some((*kind, param.as_str())),
            _ => None,
        })
    }
}

/// What a run knows of itself: where default targets and values of parameters come from. Nothing here is in the manifest's
/// `[outputs]`, and nothing comes from the sandbox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RunContext {
    /// The tracker item that the run was started for: `--item`.
    pub item: Option<String>,
    /// The run's parameters: `--param NAME=VALUE`.
    pub params: BTreeMap<String, String>,
    /// The repository that kept candidates are published to.
    pub publish: Option<String>,
    /// The repository whose workflow builds.
    pub build: Option<String>,
    /// The registry, with or without a path, that images go to.
    pub registry: Option<String>,
    /// `namespace/name` of the deployment.
    pub deployment: Option<String>,
    /// The channel of the operator; without one it is the run's log, [`OPERATOR`].
    pub channel: Option<String>,
}

impl RunContext {
    /// The default target of a kind, where one resolves. A value that could not be a scope resolves to none.
    fn target(&self, kind: Kind) -> Option<Target> {
        let text = match kind {
            Kind::DraftPr => self.publish.as_deref(),
            Kind::TrackerComment => self.item.as_deref(),
            Kind::ChatMessage => Some(self.channel.as_deref().unwrap_or(OPERATOR)),
            Kind::ImagePush => self.registry.as_deref(),
            Kind::Deploy => self.deployment.as_deref(),
            Kind::WorkflowDispatch => self.build.as_deref(),
            Kind::GpuCapture => None,
        }?;
        // A wildcard in a default would make it an open target, which no default is.
        let scope = Scope::parse(text).ok().filter(|scope| !scope.as_str().contains('*'))?;
        Some(Target::Fixed(scope))
    }
}

/// Where a bound comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// `[outputs]`.
    Manifest,
    /// The engine's table.
    EngineDefault,
}

/// The bound of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The kind.
    pub kind: Kind,
    /// How many writes of a run.
    pub count: u32,
    /// Where they go. `null` for a kind that is addressed refuses every write of it.
    pub target: Option<Target>,
    /// Where the bound comes from.
    pub source: Source,
}

/// Every kind's bound, as `BROKER_OUTPUTS` holds it: `{"version":1,"outputs":[…]}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// [`VERSION`].
    pub version: u32,
    /// One for each kind, in the order of [`Kind::ALL`].
    pub outputs: Vec<Bound>,
}

/// Why a projection cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DocumentError {
    /// It is of another version.
    #[error("read the bounds: their version is {0}, not {VERSION}")]
    Version(u32),
    /// A kind is missing, there twice, or out of order.
    #[error("read the bounds: they are not one for each kind")]
    Kinds,
    /// A kind that is addressed to nothing has a target.
    #[error("read the bounds: {0}")]
    Target(DeclareError),
}

/// The resolved bounds of a run: what is disclosed, what is projected to the broker, and what decides. One value, so that
/// they cannot drift apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outputs {
    bounds: Vec<Bound>,
    params: BTreeMap<String, String>,
}

/// A write that is within its bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The kind.
    pub kind: Kind,
    /// Where it goes; an address of the kind, or `None` for a kind that has none.
    pub target: Option<String>,
    /// Its place among the writes of its kind, from 1.
    pub number: u32,
}

/// A write that is not: what an `output_refused` row says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The kind.
    #[serde(rename = "output")]
    pub kind: Kind,
    /// The bound as one would write it in a manifest: `[outputs.tracker-comment].count`.
    pub bound: String,
    /// The target that was asked for, or would have been used; empty where there is none.
    pub requested: String,
    /// Why.
    pub reason: Refused,
}

impl Outputs {
    /// Resolves what is declared, and the engine's table for what is not.
    pub fn resolve(declared: &Declared, run: &RunContext) -> Self {
        let bound = |kind: Kind| match declared.of(kind) {
            Some(Declaration { count, target }) => {
                Bound { kind, count: *count, target: target.clone(), source: Source::Manifest }
            }
            None => Bound {
                kind,
                count: kind.default_count(),
                target: run.target(kind),
                source: Source::EngineDefault,
            },
        };
        Self { bounds: Kind::ALL.into_iter().map(bound).collect(), params: run.params.clone() }
    }

    /// The projection to the broker, `BROKER_OUTPUTS`.
    pub fn document(&self) -> Document {
        Document { version: VERSION, outputs: self.bounds.clone() }
    }

    /// The values of parameters, `BROKER_OUTPUT_PARAMS`.
    pub fn params(&self) -> &BTreeMap<String, String> {
        &self.params
    }

    /// Reads a projection back.
    ///
    /// # Errors
    /// See [`DocumentError`].
    pub fn read(document: Document, params: BTreeMap<String, String>) -> Result<Self, DocumentError> {
        if document.version != VERSION {
            return Err(DocumentError::Version(document.version));
        }
        if !document.outputs.iter().map(|bound| bound.kind).eq(Kind::ALL) {
            return Err(DocumentError::Kinds);
        }
        let wrong =
            document.outputs.iter().find(|bound| !bound.kind.is_addressed() && bound.target.is_some());
        match wrong {
            Some(bound) => Err(DocumentError::Target(DeclareError::TakesNone(bound.kind))),
            None => Ok(Self { bounds: document.outputs, params }),
        }
    }

    /// Every bound, in the order of [`Kind::ALL`].
    pub fn bounds(&self) -> &[Bound] {
        &self.bounds
    }

    /// The bound of a kind.
    pub fn of(&self, kind: Kind) -> Option<&Bound> {
        self.bounds.iter().find(|bound| bound.kind == kind)
    }

    /// Decides one write of a run that had `used` of the kind before. The target is looked at before the count, so that a
    /// write that could never be is told so.
    ///
    /// # Errors
    /// The refusal, which names the bound.
    pub fn admit(&self, kind: Kind, requested: Option<&str>, used: u32) -> Result<Admission, Refusal> {
        let target = self.target(kind, requested)?;
        let count = self.of(kind).map_or(0, |bound| bound.count);
        if used >= count {
            let requested = target.unwrap_or_default();
            return Err(refusal(kind, "count", &requested, Refused::OverCount));
        }
        Ok(Admission { kind, target, number: used.saturating_add(1) })
    }

    /// Whether a read of a target is within the bound of writes there; it costs nothing of the count. Answers the target.
    ///
    /// # Errors
    /// The refusal, which names the bound.
    pub fn admit_read(&self, kind: Kind, requested: Option<&str>) -> Result<String, Refusal> {
        self.target(kind, requested).map(Option::unwrap_or_default)
    }

    /// Where a write goes: what was asked for, where the bound admits it; else the one place that the bound names.
    fn target(&self, kind: Kind, requested: Option<&str>) -> Result<Option<String>, Refusal> {
        let refused = |text: &str, reason| refusal(kind, "target", text, reason);
        if !kind.is_addressed() {
            return match requested {
                Some(text) => Err(refused(text, Refused::Unaddressed)),
                None => Ok(None),
            };
        }
        let asked = requested.unwrap_or_default();
        let target = self.of(kind).and_then(|bound| bound.target.as_ref());
        let target = target.ok_or_else(|| refused(asked, Refused::TargetUnresolved))?;
        let (scope, bound_to) = match target {
            Target::Fixed(scope) => (scope, None),
            Target::Open { scope, param: None } => (scope, None),
            Target::Open { scope, param: Some(param) } => {
                let value = self.params.get(param).ok_or_else(|| refused(asked, Refused::ParamMissing))?;
                (scope, Some(value.as_str()))
            }
        };
        let named = match target {
            Target::Fixed(scope) => Some(scope.as_str()),
            Target::Open { .. } => bound_to,
        };
        let value = requested.or(named).ok_or_else(|| refused("", Refused::NoTarget))?;
        if !address(kind, value) {
            let reason = if requested.is_some() { Refused::NotAnAddress } else { Refused::NoTarget };
            return Err(refused(value, reason));
        }
        if bound_to.is_some_and(|bound| bound != value) {
            return Err(refused(value, Refused::ParamMismatch));
        }
        if scope.admits(value) {
            Ok(Some(value.to_owned()))
        } else {
            Err(refused(value, Refused::OutsideScope))
        }
    }
}

/// A refusal that names a key of `[outputs.<kind>]`.
fn refusal(kind: Kind, key: &str, requested: &str, reason: Refused) -> Refusal {
    Refusal { kind, bound: format!("[outputs.{kind}].{key}"), requested: requested.to_owned(), reason }
}

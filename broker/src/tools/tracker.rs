//! Turns a comment, or a look at an item, into calls of Jira's REST API version 2 or of GitHub's issues.
//! It refuses to write without a permit, and to write at an item whose real name the permit's bound does not cover.

use hyper::Method;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::call::Failed;
use super::fault::{Fault, Trouble};
use super::fetch::{ANSWER_MAX, Ask, Credential, Fetcher};
use crate::core::json;
use crate::systems::url::{Url, segment};
use crate::systems::{Tracker, TrackerKind};
use crate::writes::Permit;

/// The longest description that is shown, in characters.
const SHOWN: usize = 16_000;

/// What is read of an item.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    /// Its real name, after renames and moves.
    name: String,
    title: String,
    state: String,
    body: String,
}

impl Tracker {
    /// Comments. The item is read first, so that one that was renamed or moved is judged by its real name (row 102).
    pub(super) async fn comment(
        &self,
        fetch: &Fetcher,
        permit: &Permit,
        body: &str,
    ) -> Result<Value, Failed> {
        let item = self.read(fetch, permit.target()).await.map_err(Trouble::before_writing)?;
        permit.also_at(&item.name).await?;
        let url = self.place(&item.name)?.join(match self.kind {
            TrackerKind::Jira => "/comment",
            TrackerKind::Github => "/comments",
        });
        let text = serde_json::to_vec(&json!({ "body": body })).map_err(|_| self.malformed("a comment"))?;
        let made = self.ask(fetch, Method::POST, &url, Some(text)).await;
        // After a 2xx the comment is there, whatever the body says.
        let (id, link) = match made {
            Ok(made) => (number(&made), link(&made)),
            Err(Trouble { fault: Fault::Malformed(..) | Fault::TooLarge(..), nothing: false }) => {
                (String::new(), String::new())
            }
            Err(trouble) => return Err(trouble.into()),
        };
        Ok(json!({ "written": true, "target": item.name, "comment": id, "link": link }))
    }

    /// Reads an item.
    pub(super) async fn get(&self, fetch: &Fetcher, item: &str) -> Result<(String, Value), Trouble> {
        let Item { name, title, state, body } = self.read(fetch, item).await?;
        let body: String = body.chars().take(SHOWN).collect();
        let shown = json!({ "item": name, "title": title, "state": state, "description": body });
        Ok((name, shown))
    }

    async fn read(&self, fetch: &Fetcher, item: &str) -> Result<Item, Trouble> {
        let url = self.place(item)?;
        let url = match self.kind {
            TrackerKind::Jira => url.join("?fields=summary,status,description"),
            TrackerKind::Github => url,
        };
        let found = self.ask(fetch, Method::GET, &url, None).await?;
        let text = |at: &str| json::text(&found, at).to_owned();
        let read = match self.kind {
            TrackerKind::Jira => Item {
                name: text("/key"),
                title: text("/fields/summary"),
                state: text("/fields/status/name"),
                body: text("/fields/description"),
            },
            TrackerKind::Github => Item {
                name: github_name(&found).unwrap_or_default(),
                title: text("/title"),
                state: text("/state"),
                body: text("/body"),
            },
        };
        // GitHub's names differ in case only by the spelling of who asks.
        let same = self.kind == TrackerKind::Github && read.name.eq_ignore_ascii_case(item);
        match read.name.as_str() {
            "" => Err(self.malformed("it does not name the item")),
            _ if same => Ok(Item { name: item.to_owned(), ..read }),
            _ => Ok(read),
        }
    }

    /// Where an item's API begins.
    fn place(&self, item: &str) -> Result<Url, Trouble> {
        let base = Url::of_system(&self.url).map_err(|_| self.malformed("its URL cannot be used"))?;
        match (self.kind, item.split_once('#')) {
            (TrackerKind::Jira, None) => Ok(base.join(&format!("/rest/api/2/issue/{}", segment(item)))),
            (TrackerKind::Github, Some((repo, number))) => {
                let (owner, name) = repo.split_once('/').unwrap_or_default();
                let (owner, name) = (segment(owner), segment(name));
                Ok(base.join(&format!("/repos/{owner}/{name}/issues/{}", segment(number))))
            }
            (TrackerKind::Jira, Some(_)) => {
                Err(self.malformed("the item is one of GitHub's, and the tracker is Jira"))
            }
            (TrackerKind::Github, None) => {
                Err(self.malformed("the item is one of Jira's, and the tracker is GitHub"))
            }
        }
    }

    fn malformed(&self, why: &'static str) -> Trouble {
        Trouble::nothing(Fault::Malformed(self.host(), why))
    }

    fn host(&self) -> String {
        Url::parse(&self.url).map(|url| url.authority()).unwrap_or_default()
    }

    async fn ask(
        &self,
        fetch: &Fetcher,
        method: Method,
        url: &Url,
        body: Option<Vec<u8>>,
    ) -> Result<Value, Trouble> {
        let credential = match &self.user {
            Some(user) => Credential::Basic(user, &self.token),
            None => Credential::Bearer(&self.token),
        };
        let accept = match self.kind {
            TrackerKind::Jira => "application/json",
            TrackerKind::Github => "application/vnd.github+json",
        };
        let body = body.map(|text| ("application/json", Bytes::from(text)));
        let ask = Ask { method, url, credential, accept, body, most: ANSWER_MAX };
        fetch.ask(ask).await?.json(&url.authority())
    }
}

/// The name that the tracker gave a comment: GitHub's is a number, Jira's a text.
fn number(made: &Value) -> String {
    let id = made.get("id").map(ToString::to_string).unwrap_or_default();
    policy::record::clean(id.trim_matches('"'))
}

/// The link that a person opens.
fn link(made: &Value) -> String {
    let link = made.get("html_url").or_else(|| made.get("self")).and_then(Value::as_str);
    link.map(policy::record::clean).unwrap_or_default()
}

/// `owner/repo#number` of what was found: by its own repository, not by the one that was asked for.
fn github_name(found: &Value) -> Option<String> {
    let mut parts = json::text(found, "/repository_url").rsplit('/');
    let (name, owner) = (parts.next()?, parts.next()?);
    Some(format!("{owner}/{name}#{}", found.get("number")?.as_u64()?))
}

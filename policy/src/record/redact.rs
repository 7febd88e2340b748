//! Turns what a sandbox asked for into what may be written down: bounded, printable, without credentials.
//! It refuses to know which texts are secret, and is told them.

/// The longest text that is kept, in characters.
const KEPT: usize = 512;
/// A secret shorter than this is found in too many texts to be taken out.
const SECRET_MIN: usize = 6;
const GONE: &str = "[redacted]";

/// Takes secrets out of texts. Its `Debug` shows none.
#[derive(Clone, Default)]
pub struct Redactor {
    secrets: Vec<String>,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

impl Redactor {
    /// Knows these values; those of fewer than six bytes are left in.
    pub fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut secrets: Vec<String> =
            secrets.into_iter().filter(|secret| secret.len() >= SECRET_MIN).collect();
        // The longest first, so that a secret within another does not leave the rest of it.
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        Self { secrets }
    }

    /// The text without secrets, user and query values, with controls escaped, cut at 512 characters.
    pub fn target(&self, text: &str) -> String {
        clean(&self.secrets(&values(&user(text))))
    }

    /// The text without secrets.
    pub fn secrets(&self, text: &str) -> String {
        self.secrets.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), GONE))
    }
}

/// The text with controls and invisible characters escaped, cut at 512 characters.
pub fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len().min(KEPT));
    for c in text.chars().take(KEPT) {
        let invisible = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        if c.is_control() || invisible {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    if text.chars().nth(KEPT).is_some() {
        out.push('…');
    }
    out
}

/// Takes `user:password@` out of an authority, with or without a scheme before it.
fn user(text: &str) -> String {
    let start = text.find("://").map_or(0, |at| at + 3);
    let (scheme, rest) = text.split_at(start);
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    match authority.rsplit_once('@') {
        Some((_, host)) => format!("{scheme}{GONE}@{host}{path}"),
        None => text.to_owned(),
    }
}

/// Takes the values out of a query; the names stay.
fn values(text: &str) -> String {
    let Some((before, query)) = text.split_once('?') else { return text.to_owned() };
    let pairs = query.split('&').map(|pair| match pair.split_once('=') {
        Some((name, _)) => format!("{name}={GONE}"),
        None => GONE.to_owned(),
    });
    format!("{before}?{}", pairs.collect::<Vec<_>>().join("&"))
}

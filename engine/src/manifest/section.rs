//! Turns one table of the parsed text into values of the kinds that its key table promises.
//! It refuses to know what any key means.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::At;
use super::error::{Mistake, Sink, expected};
use super::keys::{Kind, Presence, Table};
use super::number;
use super::value::{self, ValueError};

/// One table as it was written, already checked against its key table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section<'d> {
    spec: &'static Table,
    entries: Option<&'d DeTable<'d>>,
}

impl<'d> Section<'d> {
    /// Checks the names and the types of all keys; `at` is where a missing key is reported.
    pub(super) fn open(
        spec: &'static Table,
        entries: Option<&'d DeTable<'d>>,
        at: &Range<usize>,
        sink: &mut Sink,
    ) -> Self {
        let section = Self { spec, entries };
        for (key, value) in entries.into_iter().flatten() {
            section.check(key.get_ref(), key.span(), value, sink);
        }
        for key in spec.keys.iter().filter(|key| matches!(key.presence, Presence::Required)) {
            if section.find(key.name).is_none() && !section.misspells(key.name) {
                let missing = Mistake::Missing { key: spec.key_title(key.name), doc: key.doc };
                sink.put(at.clone(), missing);
            }
        }
        section
    }

    fn check(&self, name: &str, at: Range<usize>, value: &Spanned<DeValue<'_>>, sink: &mut Sink) {
        let Some(key) = self.spec.key(name) else {
            let unknown = Mistake::Unknown { key: value::shorten(name), table: self.spec.title() };
            return sink.put(at, unknown);
        };
        if let Presence::Absent(missing) = key.presence {
            return sink.put(at, Mistake::NotBuilt { key: self.spec.key_title(name), missing });
        }
        if let Err(error) = fits(key.kind, value.get_ref()) {
            sink.put(value.span(), Mistake::Value { key: self.spec.key_title(name), error });
        } else if let (Kind::Texts, Some(items)) = (key.kind, value.get_ref().as_array()) {
            for item in items {
                if let Err(error) = line(item.get_ref()) {
                    let key = format!("an item of {}", self.spec.key_title(name));
                    sink.put(item.span(), Mistake::Value { key, error });
                }
            }
        }
    }

    /// Whether some unknown key was probably meant to be this one: that is reported, and its absence is not.
    pub(super) fn misspells(&self, name: &str) -> bool {
        const LOOKED_AT: usize = 100;
        let names = self.entries.into_iter().flatten().map(|(key, _)| key.get_ref());
        let mut unknown = names.filter(|written| self.spec.key(written).is_none()).take(LOOKED_AT);
        unknown.any(|written| self.spec.nearest(written) == Some(name))
    }

    fn find(&self, name: &str) -> Option<(&'d Spanned<std::borrow::Cow<'d, str>>, &'d Spanned<DeValue<'d>>)> {
        debug_assert!(self.spec.key(name).is_some(), "{name} stands in no key table");
        self.entries?.get_key_value(name)
    }

    /// Where the key stands, whatever its value is worth.
    pub(super) fn place(&self, name: &str) -> Option<Range<usize>> {
        self.find(name).map(|(key, _)| key.span())
    }

    /// The table under that key.
    pub(super) fn table(&self, name: &str) -> Option<(&'d DeTable<'d>, Range<usize>)> {
        let (key, value) = self.find(name)?;
        Some((value.get_ref().as_table()?, key.span()))
    }

    /// The items of the list under that key.
    pub(super) fn items(&self, name: &str) -> &'d [Spanned<DeValue<'d>>] {
        self.find(name)
            .and_then(|(_, value)| value.get_ref().as_array())
            .map(|array| &**array)
            .unwrap_or_default()
    }

    /// The tables of the list under that key, each checked against `spec`; an item that is no table is reported.
    pub(super) fn tables(
        &self,
        name: &str,
        spec: &'static Table,
        sink: &mut Sink,
    ) -> Vec<(Section<'d>, Range<usize>)> {
        let mut read = Vec::new();
        for item in self.items(name) {
            match item.get_ref().as_table() {
                Some(entries) => {
                    read.push((Section::open(spec, Some(entries), &item.span(), sink), item.span()));
                }
                None => {
                    let error = ValueError::WrongType { expected: "a table", found: found(item.get_ref()) };
                    let key = format!("an item of {}", self.spec.key_title(name));
                    sink.put(item.span(), Mistake::Value { key, error });
                }
            }
        }
        read
    }

    /// The good texts of the list under that key; the others are reported already.
    pub(super) fn texts(&self, name: &str) -> Vec<At<&'d str>> {
        let good = |item: &'d Spanned<DeValue<'d>>| {
            Some(At { value: line(item.get_ref()).ok()?, span: item.span() })
        };
        self.items(name).iter().filter_map(good).collect()
    }

    /// The number under that key, whatever kind of number it is; one that is not good is reported already.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        let kind = self.spec.key(name)?.kind;
        let (_, value) = self.find(name)?;
        number_of(kind, value.get_ref())?.ok()
    }

    /// The flag under that key.
    pub(super) fn flag(&self, name: &str) -> Option<At<bool>> {
        let (_, value) = self.find(name)?;
        Some(At { value: value.get_ref().as_bool()?, span: value.span() })
    }

    /// The text under that key, where it is of the promised kind.
    pub(super) fn text(&self, name: &str) -> Option<At<&'d str>> {
        let kind = self.spec.key(name)?.kind;
        let (_, value) = self.find(name)?;
        fits(kind, value.get_ref()).ok()?;
        Some(At { value: value.get_ref().as_str()?, span: value.span() })
    }

    /// The text under that key as `parse` reads it; a mistake goes to `sink` under its own name.
    pub(super) fn parse<T, E: Into<Mistake>>(
        &self,
        name: &str,
        sink: &mut Sink,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<At<T>> {
        let At { value, span } = self.text(name)?;
        match parse(value) {
            Ok(value) => Some(At { value, span }),
            Err(error) => {
                sink.put(span, error);
                None
            }
        }
    }

    /// The same for values whose mistakes are named after the key.
    pub(super) fn value<T>(
        &self,
        name: &str,
        sink: &mut Sink,
        parse: impl FnOnce(&str) -> Result<T, ValueError>,
    ) -> Option<At<T>> {
        let key = self.spec.key_title(name);
        self.parse(name, sink, |text| parse(text).map_err(|error| Mistake::Value { key, error }))
    }
}

/// The number that a value stands for, if its key takes numbers.
fn number_of(kind: Kind, value: &DeValue<'_>) -> Option<Result<u64, ValueError>> {
    match kind {
        Kind::Whole(bounds) => Some(number::whole(value, bounds)),
        Kind::Thousandths(bounds) => Some(number::thousandths(value, bounds)),
        Kind::Size(bounds) => Some(number::size(value, bounds)),
        _ => None,
    }
}

/// One item of a list of texts.
fn line<'d>(value: &'d DeValue<'_>) -> Result<&'d str, ValueError> {
    let wrong = || ValueError::WrongType { expected: "a string", found: found(value) };
    let text = value.as_str().ok_or_else(wrong)?;
    value::check_line(text).map(|()| text)
}

fn fits(kind: Kind, value: &DeValue<'_>) -> Result<(), ValueError> {
    if let Some(number) = number_of(kind, value) {
        return number.map(|_| ());
    }
    let right = match kind {
        Kind::Flag => value.is_bool(),
        Kind::Injects | Kind::Texts | Kind::Tables(_) => value.is_array(),
        Kind::Table(_) | Kind::Names => value.is_table(),
        Kind::Duration if value.is_integer() || value.is_float() => {
            return Err(ValueError::DurationNumber { digits: whole_seconds(value) });
        }
        _ => value.is_str(),
    };
    if !right {
        return Err(ValueError::WrongType { expected: expected(kind), found: found(value) });
    }
    value.as_str().map_or(Ok(()), value::check_text)
}

fn whole_seconds(value: &DeValue<'_>) -> Option<String> {
    let integer = value.as_integer().filter(|integer| integer.radix() == 10)?;
    let digits = integer.as_str();
    let plain = digits.len() < 8 && digits.bytes().all(|byte| byte.is_ascii_digit()) && digits != "0";
    plain.then(|| digits.to_owned())
}

/// How a message names the type of a value.
pub(super) fn found(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a float",
        DeValue::Boolean(_) => "a boolean",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

//! `docs/terms.toml`: the banned words and the names that several types may have.
//! Promises: a table that loads is sound: scopes are known, words are lower case, every exception has a reason.

use serde::Deserialize;

use crate::tidy::files::{Finding, Text};

/// Path of the table.
pub const PATH: &str = "docs/terms.toml";

/// The whole table.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Paths that hold no words of ours.
    #[serde(default)]
    pub exempt: Vec<Exempt>,
    /// Names that several types may have.
    #[serde(default)]
    pub same_type: Vec<SameType>,
    /// The banned words.
    #[serde(default)]
    pub term: Vec<Term>,
}

/// A path in which no word is looked for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exempt {
    /// A file or directory.
    pub path: String,
    /// The scope whose words are fine there; none: all.
    pub scope: Option<Scope>,
    /// The reason.
    pub why: String,
}

/// Names that may stand for a type in several crates, or several times in one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SameType {
    /// The names.
    pub names: Vec<String>,
    /// The reason.
    pub why: String,
}

/// A banned word.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Term {
    /// The word with its variants; a phrase has spaces, or hyphens where only the joined form is banned.
    pub words: Vec<String>,
    /// Replacement for the word.
    #[serde(rename = "use")]
    pub instead: String,
    /// Scope in which it is banned.
    pub scope: Scope,
    /// Surroundings in which it is fine; a space is any whitespace, `#` any digit.
    #[serde(default)]
    pub keep: Vec<String>,
    /// Exceptions.
    #[serde(default)]
    pub allow: Vec<Allow>,
}

/// Scope in which a word is banned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Everywhere: code, comments, strings, documents, file names.
    Text,
    /// As a word of an identifier in Rust code, of an option, key or metric, and of a file name.
    Names,
    /// As the whole name of a file or directory.
    Files,
    /// As a whole option, key, field or metric name: the names of earlier releases.
    Options,
}

/// An exception.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// The file or directory in which the word is fine; none: everywhere.
    pub path: Option<String>,
    /// The identifier that may hold the word; none: any.
    pub name: Option<String>,
    /// The reason.
    pub why: String,
}

impl Table {
    /// The table among `texts`, empty if there is none.
    ///
    /// Errors: why it cannot be used.
    pub fn load(texts: &[Text]) -> Result<Self, Finding> {
        let Some(text) = texts.iter().find(|text| text.path == PATH) else { return Ok(Self::default()) };
        let table: Self = toml::from_str(&text.text).map_err(|error| {
            let line = error.span().map_or(1, |span| 1 + text.text[..span.start].matches('\n').count());
            text.finding(line, error.message().to_owned())
        })?;
        match table.fault() {
            None => Ok(table),
            Some(fault) => Err(text.finding(1, fault)),
        }
    }

    fn fault(&self) -> Option<String> {
        let whys = self.exempt.iter().map(|exempt| (&exempt.path, &exempt.why));
        let whys =
            whys.chain(self.same_type.iter().filter_map(|same| Some((same.names.first()?, &same.why))));
        let whys = whys.chain(self.term.iter().flat_map(|term| {
            let word = term.words.first().unwrap_or(&term.instead);
            term.allow.iter().map(move |allow| (word, &allow.why))
        }));
        for (what, why) in whys {
            if why.trim().is_empty() {
                return Some(format!("the exception for `{what}` has no reason"));
            }
        }
        for term in &self.term {
            if term.instead.trim().is_empty() || term.words.is_empty() {
                return Some(format!("a term lacks `words` or `use`: {:?}", term.words));
            }
            if let Some(word) = term.words.iter().find(|word| !is_sound(word)) {
                return Some(format!(
                    "`{word}`: words are lower case letters, joined by single spaces or hyphens"
                ));
            }
            if let Some(allow) = term.allow.iter().find(|allow| allow.path.is_none() && allow.name.is_none())
            {
                return Some(format!("an exception needs `path` or `name`: {}", allow.why));
            }
        }
        None
    }
}

fn is_sound(word: &str) -> bool {
    word.split([' ', '-', '_'])
        .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase()))
}

/// Whether `path` is `prefix` or lies below it.
pub fn is_below(path: &str, prefix: &str) -> bool {
    path.strip_prefix(prefix.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::{PATH, Table, is_below};
    use crate::tidy::files::Text;

    fn check(toml: &str, expected: Option<&str>) {
        let text = Text { path: PATH.to_owned(), text: toml.to_owned() };
        let fault = Table::load(&[text]).err().map(|finding| finding.what);
        match (fault, expected) {
            (None, None) => {}
            (Some(fault), Some(expected)) if fault.contains(expected) => {}
            (fault, _) => panic!("{toml}: {fault:?}, expected {expected:?}"),
        }
    }

    #[test]
    fn a_table_is_sound_or_refused() {
        check("[[term]]\nwords = [\"foo\", \"foo bar\"]\nuse = \"baz\"\nscope = \"text\"\n", None);
        check("[[term]]\nwords = [\"Foo\"]\nuse = \"baz\"\nscope = \"text\"\n", Some("lower case"));
        check("[[term]]\nwords = [\"foo\"]\nuse = \"\"\nscope = \"text\"\n", Some("lacks"));
        check("[[term]]\nwords = [\"foo\"]\nuse = \"a\"\nscope = \"some\"\n", Some("unknown variant"));
        check("[[exempt]]\npath = \"a\"\nwhy = \" \"\n", Some("no reason"));
        let allow = "[[term]]\nwords = [\"foo\"]\nuse = \"a\"\nscope = \"text\"\nallow = [{ why = \"x\" }]\n";
        check(allow, Some("needs `path` or `name`"));
        check("pendin = []\n", Some("unknown field"));
    }

    #[test]
    fn prefixes_are_whole_names() {
        assert!(is_below("crates/flick/src/a.rs", "crates/flick"));
        assert!(is_below("a.md", "a.md"));
        assert!(!is_below("crates/flick-net/src/a.rs", "crates/flick"));
    }
}

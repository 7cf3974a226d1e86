//! One name, one type.
//! Promises: finds a name that two types of a crate have, whatever their visibility outside of it, and a name that two
//! crates export.
//! Not here: types private to their file, types of tests, associated types.

use std::collections::BTreeMap;

use super::files::{Finding, Text};
use super::source::{self, Source};
use super::terms::table::Table;

/// A type that other files can name.
struct Type<'a> {
    name: String,
    krate: String,
    text: &'a Text,
    line: usize,
    /// Whether other crates can name it.
    is_exported: bool,
}

/// Fails for the name of a type that stands for another type too, in its crate or in what another crate exports.
pub fn one_name_is_one_type(texts: &[Text]) -> Vec<Finding> {
    let table = match Table::load(texts) {
        Ok(table) => table,
        // The check of words says what is wrong with it.
        Err(_) => return Vec::new(),
    };
    let may_repeat = |name: &str| table.same_type.iter().any(|same| same.names.iter().any(|own| own == name));
    let mut by_name: BTreeMap<String, Vec<Type<'_>>> = BTreeMap::new();
    for krate in crates(texts) {
        for found in types(texts, &krate).into_iter().filter(|found| !may_repeat(&found.name)) {
            by_name.entry(found.name.clone()).or_default().push(found);
        }
    }
    let mut findings = Vec::new();
    for types in by_name.values() {
        for (index, found) in types.iter().enumerate() {
            let others = types.iter().enumerate().filter(|(other, _)| *other != index);
            let other = others
                .map(|(_, other)| other)
                .find(|other| other.krate == found.krate || (other.is_exported && found.is_exported));
            if let Some(other) = other {
                let what = format!("`{}` is also a type in {}:{}", found.name, other.text.path, other.line);
                findings.push(found.text.finding(found.line, what));
            }
        }
    }
    findings
}

/// The directories of the workspace's crates.
fn crates(texts: &[Text]) -> Vec<String> {
    let manifests = texts.iter().filter_map(|text| text.path.strip_suffix("/Cargo.toml"));
    manifests.filter(|path| !path.contains("/tests/")).map(str::to_owned).collect()
}

/// The types of a crate that other files can name.
fn types<'a>(texts: &'a [Text], krate: &str) -> Vec<Type<'a>> {
    let root = format!("{krate}/src");
    let is_library = texts.iter().any(|text| text.path == format!("{root}/lib.rs"));
    let mut types = Vec::new();
    for source in Source::below(texts, &root) {
        for keyword in ["struct", "enum", "union", "trait", "type"] {
            for at in source.words(keyword) {
                let line_start = source.code[..at].rfind('\n').map_or(0, |end| end + 1);
                let before = source.code[line_start..at].trim();
                let name = source::identifier(source.code[at + keyword.len()..].trim_start());
                if !before.starts_with("pub") || name.is_empty() {
                    continue;
                }
                types.push(Type {
                    name: name.to_owned(),
                    krate: krate.to_owned(),
                    text: source.text,
                    line: source.line(at),
                    is_exported: is_library && !before.starts_with("pub("),
                });
            }
        }
    }
    types
}

#[cfg(test)]
mod tests {
    use super::one_name_is_one_type;
    use crate::tidy::files::Text;
    use crate::tidy::terms::table;

    fn check(files: &[(&str, &str)], expected: &[&str]) {
        let manifests =
            [("crates/a/Cargo.toml", ""), ("crates/b/Cargo.toml", ""), ("crates/c/Cargo.toml", "")];
        let same = [(table::PATH, "[[same_type]]\nnames = [\"Same\"]\nwhy = \"of both\"\n")];
        let roots = [("crates/a/src/lib.rs", ""), ("crates/b/src/lib.rs", ""), ("crates/c/src/main.rs", "")];
        let all = manifests.iter().chain(&roots).chain(files).chain(&same);
        let texts: Vec<_> =
            all.map(|(path, text)| Text { path: (*path).to_owned(), text: (*text).to_owned() }).collect();
        let found: Vec<_> = one_name_is_one_type(&texts).iter().map(|finding| finding.path.clone()).collect();
        assert_eq!(found, expected, "{files:?}");
    }

    #[test]
    fn a_name_is_one_type_of_its_crate() {
        let twice =
            [("crates/a/src/x.rs", "pub struct Foo;"), ("crates/a/src/y.rs", "pub(crate) enum Foo {}")];
        check(&twice, &["crates/a/src/x.rs", "crates/a/src/y.rs"]);
        check(&[("crates/a/src/x.rs", "pub struct Foo;"), ("crates/a/src/y.rs", "enum Foo {}")], &[]);
        check(&[("crates/a/src/x.rs", "pub struct Same;"), ("crates/a/src/y.rs", "pub struct Same;")], &[]);
    }

    #[test]
    fn a_name_is_one_type_of_the_workspace() {
        let twice = [("crates/a/src/x.rs", "pub struct Foo;"), ("crates/b/src/x.rs", "pub type Foo = u8;")];
        check(&twice, &["crates/a/src/x.rs", "crates/b/src/x.rs"]);
        check(
            &[("crates/a/src/x.rs", "pub struct Foo;"), ("crates/b/src/x.rs", "pub(crate) struct Foo;")],
            &[],
        );
        check(&[("crates/a/src/x.rs", "pub struct Foo;"), ("crates/c/src/x.rs", "pub struct Foo;")], &[]);
        let test = "#[cfg(test)]\nmod tests { pub struct Foo; }";
        check(&[("crates/a/src/x.rs", "pub struct Foo;"), ("crates/b/src/x.rs", test)], &[]);
    }
}

//! Banned words: `docs/terms.toml` says which, where, and what to write instead.
//! Promises: code, comments, strings, documents and file names are searched; phrases are found across line ends and in
//! identifiers.
//! Not here: what is a word (`words.rs`), the table's format (`table.rs`).

pub mod table;

mod words;

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use super::files::{Finding, Text};
use super::lexer::{self, RegionKind};
use crate::run::Outcome;
use table::{Scope, Table, Term, is_below};
use words::{Joint, Word};

/// Fails for a banned word.
pub fn no_banned_words(texts: &[Text]) -> Vec<Finding> {
    let table = match Table::load(texts) {
        Ok(table) => table,
        Err(finding) => return vec![finding],
    };
    let search = Search::new(&table);
    texts.iter().flat_map(|text| search.findings(text)).map(|(_, finding)| finding).collect()
}

/// Prints the banned words below `path` and how often each occurs.
///
/// Errors: there are some.
pub fn show(texts: &[Text], path: &str) -> Outcome {
    let table = Table::load(texts).map_err(|finding| finding.to_string())?;
    let search = Search::new(&table);
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let below = texts.iter().filter(|text| path == "." || is_below(&text.path, path));
    for (word, finding) in below.flat_map(|text| search.findings(text)) {
        println!("{finding}");
        *counts.entry(word).or_default() += 1;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(word, count)| (std::cmp::Reverse(*count), word.clone()));
    for (word, count) in &counts {
        println!("{count:>6} {word}");
    }
    match counts.iter().map(|(_, count)| count).sum::<usize>() {
        0 => Ok(()),
        total => Err(format!("{total} banned words below {path}")),
    }
}

/// A banned phrase.
struct Phrase<'a> {
    term: &'a Term,
    words: Vec<&'a str>,
    joint: Joint,
}

/// The banned phrases by their first word.
struct Search<'a> {
    table: &'a Table,
    phrases: HashMap<&'a str, Vec<Phrase<'a>>>,
}

impl<'a> Search<'a> {
    fn new(table: &'a Table) -> Self {
        let mut phrases: HashMap<&str, Vec<Phrase<'_>>> = HashMap::new();
        for term in &table.term {
            for text in &term.words {
                let words: Vec<&str> = text.split([' ', '-', '_']).collect();
                let joint = if text.contains(['-', '_']) { Joint::Joined } else { Joint::Any };
                phrases.entry(words[0]).or_default().push(Phrase { term, words, joint });
            }
        }
        Self { table, phrases }
    }

    /// The banned words of a text and of its path, each with the phrase that it is.
    fn findings(&self, text: &Text) -> Vec<(String, Finding)> {
        if text.path == table::PATH || self.is_exempt(&text.path, None) {
            return Vec::new();
        }
        let mut found = self.in_path(text);
        let subject = Subject::new(text);
        let lines: Vec<usize> = text.text.match_indices('\n').map(|(at, _)| at).collect();
        for (phrase, range) in self.matches(&text.text) {
            if subject.is_banned(phrase, &range) && !self.is_exempt(&text.path, Some(phrase.term.scope)) {
                let line = 1 + lines.partition_point(|end| *end < range.start);
                found.push(Self::finding(text, line, phrase));
            }
        }
        found
    }

    /// Whether words of `scope`, or of all scopes, are fine in `path`.
    fn is_exempt(&self, path: &str, scope: Option<Scope>) -> bool {
        self.table.exempt.iter().any(|exempt| exempt.scope == scope && is_below(path, &exempt.path))
    }

    /// All positions of `text` where a phrase stands, whatever its scope.
    fn matches(&self, text: &str) -> Vec<(&Phrase<'a>, Range<usize>)> {
        let words = words::words(text);
        let mut matches = Vec::new();
        for (index, word) in words.iter().enumerate() {
            for phrase in self.phrases.get(word.text.as_str()).into_iter().flatten() {
                if let Some(range) = phrase.at(text, &words[index..]) {
                    matches.push((phrase, range));
                }
            }
        }
        matches
    }

    /// Banned names of the file and of the directories above it.
    fn in_path(&self, text: &Text) -> Vec<(String, Finding)> {
        let mut found = Vec::new();
        for part in text.path.split('/') {
            let stem = part.split('.').next().unwrap_or_default();
            for (phrase, range) in self.matches(stem) {
                let is_banned = match phrase.term.scope {
                    Scope::Text | Scope::Names => true,
                    Scope::Files => range == (0..stem.len()),
                    Scope::Options => range == (0..stem.len()) && phrase.words.len() > 1,
                };
                if is_banned && !is_allowed(phrase.term, &text.path, stem) {
                    found.push(Self::finding(text, 1, phrase));
                }
            }
        }
        found
    }

    fn finding(text: &Text, line: usize, phrase: &Phrase<'_>) -> (String, Finding) {
        let word = phrase.words.join(if phrase.joint == Joint::Any { " " } else { "-" });
        let kind = match phrase.term.scope {
            Scope::Text => "",
            Scope::Names => " in a name",
            Scope::Files => " as the name of a file",
            Scope::Options => " is an old name",
        };
        let what = format!("`{word}`{kind} -> {}", phrase.term.instead);
        (word, text.finding(line, what))
    }
}

impl Phrase<'_> {
    /// Returns the range of the phrase in `text`, if the words `next` are those of the phrase.
    fn at(&self, text: &str, next: &[Word]) -> Option<Range<usize>> {
        let next = next.get(..self.words.len())?;
        let is_same = next.iter().zip(&self.words).all(|(word, own)| word.text == *own);
        let are_joined = next
            .windows(2)
            .all(|pair| words::joins(&text[pair[0].range.end..pair[1].range.start], self.joint));
        (is_same && are_joined).then(|| next[0].range.start..next[next.len() - 1].range.end)
    }
}

/// A text with the places of the names in it.
struct Subject<'a> {
    text: &'a Text,
    /// Code of a Rust file, options, keys of settings, metrics; in order.
    names: Vec<Range<usize>>,
    /// Code of a Rust file, where a hyphen is a minus.
    code: Vec<Range<usize>>,
    /// Keys of settings.
    keys: Vec<Range<usize>>,
}

impl<'a> Subject<'a> {
    fn new(text: &'a Text) -> Self {
        let code: Vec<_> = if text.is_rust() {
            let regions = lexer::regions(&text.text).into_iter();
            regions.filter(|region| region.kind == RegionKind::Code).map(|region| region.range).collect()
        } else {
            Vec::new()
        };
        let keys = setting_keys(text);
        let mut names = code.clone();
        names.extend(keys.iter().cloned());
        names.extend(prefixed(&text.text, "--"));
        names.extend(prefixed(&text.text, "flick_"));
        Self { text, names, code, keys }
    }

    fn is_banned(&self, phrase: &Phrase<'_>, range: &Range<usize>) -> bool {
        let text = &self.text.text;
        let is_inside = |ranges: &[Range<usize>]| {
            ranges.iter().any(|outer| outer.start <= range.start && range.end <= outer.end)
        };
        let is_code = is_inside(&self.code);
        // In code, only the words of one identifier make a phrase, not a keyword and the name after it.
        if is_code && text[range.clone()].contains(char::is_whitespace) {
            return false;
        }
        let name = words::name_around(text, range.clone(), !is_code);
        let in_scope = match phrase.term.scope {
            Scope::Text => true,
            Scope::Names => is_inside(&self.names),
            Scope::Files => false,
            Scope::Options => {
                let is_whole = text[name.clone()].trim_matches(['-', '_']) == &text[range.clone()];
                let is_option = text[name.clone()].starts_with("--");
                is_whole && (phrase.words.len() > 1 || is_option || is_inside(&self.keys))
            }
        };
        in_scope
            && !is_allowed(phrase.term, &self.text.path, &text[name])
            && !phrase.term.keep.iter().any(|keep| is_kept(text, range, keep))
    }
}

fn is_allowed(term: &Term, path: &str, name: &str) -> bool {
    term.allow.iter().any(|allow| {
        allow.path.as_ref().is_none_or(|below| is_below(path, below))
            && allow.name.as_ref().is_none_or(|allowed| allowed == name)
    })
}

/// Whether the words at `range` stand in the surroundings `keep`, which holds them.
fn is_kept(text: &str, range: &Range<usize>, keep: &str) -> bool {
    let (lower, matched) = (keep.to_ascii_lowercase(), text[range.clone()].to_ascii_lowercase());
    lower.match_indices(&matched).any(|(at, _)| {
        let front = lower[..at].bytes().rev();
        let back = lower[at + matched.len()..].bytes();
        surrounds(front, text.as_bytes()[..range.start].iter().rev().copied())
            && surrounds(back, text.as_bytes()[range.end..].iter().copied())
    })
}

/// Whether `text` begins with `wanted`; a space is any whitespace with markers of comments, `#` a digit.
fn surrounds(wanted: impl Iterator<Item = u8>, text: impl Iterator<Item = u8>) -> bool {
    let mut text = text.peekable();
    for byte in wanted {
        let is_there = match byte {
            b' ' => {
                let mut blanks = 0;
                while text
                    .next_if(|next| matches!(next, b' ' | b'\n' | b'/' | b'!' | b'#' | b'*' | b'>'))
                    .is_some()
                {
                    blanks += 1;
                }
                blanks > 0
            }
            b'#' => text.next().is_some_and(|next| next.is_ascii_digit()),
            byte => text.next().is_some_and(|next| next.eq_ignore_ascii_case(&byte)),
        };
        if !is_there {
            return false;
        }
    }
    true
}

/// Names that start with `prefix`, the prefix included.
fn prefixed(text: &str, prefix: &str) -> Vec<Range<usize>> {
    let starts = text.match_indices(prefix).filter(|(at, _)| {
        let is_first =
            !text[..*at].ends_with(|before: char| before.is_ascii_alphanumeric() || "-_".contains(before));
        is_first && text[at + prefix.len()..].starts_with(|next: char| next.is_ascii_lowercase())
    });
    starts.map(|(at, _)| words::name_around(text, at..at + prefix.len(), true)).collect()
}

/// Keys and tables of settings: in files for flick, and in Markdown between fences of `toml`.
fn setting_keys(text: &Text) -> Vec<Range<usize>> {
    let file = text.path.rsplit('/').next().unwrap_or_default();
    let is_ours = file.ends_with(".toml") && !matches!(file, "Cargo.toml" | "deny.toml" | "rustfmt.toml");
    let is_markdown = file.ends_with(".md");
    if !is_ours && !is_markdown {
        return Vec::new();
    }
    let (mut keys, mut start, mut is_settings) = (Vec::new(), 0, is_ours);
    for line in text.text.split_inclusive('\n') {
        let inner = line.trim();
        if is_markdown && inner.starts_with("```") {
            is_settings = inner == "```toml";
        } else if is_settings && !inner.starts_with('#') {
            let key = if inner.starts_with('[') { line.find(']') } else { line.find('=') };
            keys.extend(key.map(|length| start..start + length));
        }
        start += line.len();
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::{no_banned_words, table};
    use crate::tidy::files::Text;

    const TABLE: &str = r#"
        [[exempt]]
        path = "corpus"
        why = "data"
        [[exempt]]
        path = "CHANGELOG.md"
        scope = "options"
        why = "says what they became"
        [[term]]
        words = ["foo", "foos", "foo bar", "foo-bax"]
        use = "better"
        scope = "text"
        keep = ["%foo", "foo on", "at foo #"]
        allow = [{ path = "docs/old.md", why = "history" }, { name = "std_foo", why = "of std" }]
        [[term]]
        words = ["qux"]
        use = "better"
        scope = "names"
        [[term]]
        words = ["alone"]
        use = "better"
        scope = "files"
        [[term]]
        words = ["old-max", "old"]
        use = "new-max"
        scope = "options"
    "#;

    fn check(path: &str, text: &str, expected: &[usize]) {
        let texts = [(table::PATH, TABLE), (path, text)]
            .map(|(path, text)| Text { path: path.to_owned(), text: text.to_owned() });
        let found: Vec<_> = no_banned_words(&texts).iter().map(|finding| finding.line).collect();
        assert_eq!(found, expected, "{path}: {text}");
    }

    #[test]
    fn words_are_banned_in_every_part_of_a_text() {
        check("a.md", "Foo, foos.\n`a_foo` and fooled\n", &[1, 1, 2]);
        check("a.rs", "// foo\nfn GetFoo() {}\nlet a = \"foo\";\n", &[1, 2, 3]);
        check("foo/a.md", "", &[1]);
        check("a_foo.scn", "", &[1]);
    }

    #[test]
    fn phrases_are_banned_across_lines_and_in_identifiers() {
        let table = TABLE.replace("\"foo\", \"foos\", ", "");
        let text = "// a foo\n// bar\nfn foo_bar() {}\nlet a = FooBar;\n// foo. bar\n// foo bax\nlet foo_bax = 1;\nfoo bar\n";
        let texts = [(table::PATH, table.as_str()), ("a.rs", text)];
        let texts = texts.map(|(path, text)| Text { path: path.to_owned(), text: text.to_owned() });
        let lines: Vec<_> = no_banned_words(&texts).iter().map(|finding| finding.line).collect();
        assert_eq!(lines, [1, 3, 4, 7]);
    }

    #[test]
    fn exceptions_are_fine() {
        check("a.flick", "%foo\n%foo of\nat foo 7\nat foo b\nfoo\n  on\n", &[4]);
        check("docs/old.md", "foo", &[]);
        check("a.rs", "std_foo(); my_std_foo();", &[1]);
        check("corpus/foo", "foo", &[]);
    }

    #[test]
    fn names_are_found_and_sentences_are_not() {
        check("a.rs", "// the qux\nlet qux = \"qux\";\nfn the_qux() {}\n", &[2, 3]);
        check("a.rs", "// `--qux-max`\n\"flick_qux_total\"", &[1, 2]);
        check(
            "a.md",
            "a qux\n`--max-qux`\n```toml\nqux = 1\na = \"qux\"\n[a.qux]\n```\nqux = 1\n",
            &[2, 4, 6],
        );
        check("a/flick.toml", "# qux = 1\nqux_max = 1\n", &[2]);
        check("tests/a_qux.rs", "", &[1]);
    }

    #[test]
    fn files_may_not_have_the_name_and_words_may() {
        check("a/alone.rs", "alone", &[1]);
        check("alone/a.rs", "alone", &[1]);
        check("a/all_alone.rs", "alone", &[]);
    }

    #[test]
    fn old_options_are_found_as_whole_names() {
        check("a.rs", "self.old_max\nself.not_old_max\nlet old = 1;\nOLD_MAX\n// `old-max`\n", &[1, 4, 5]);
        check("a.md", "`--old` and old\n```toml\nold = 1\n```\nold-max, very-old-max\n", &[1, 3, 5]);
        check("CHANGELOG.md", "`--old-max` foo", &[1]);
    }

    #[test]
    fn a_broken_table_is_a_finding() {
        let text = Text { path: table::PATH.to_owned(), text: "pending = 1".to_owned() };
        assert_eq!(no_banned_words(&[text]).len(), 1);
    }
}

//! Rust source as the checks of types, components and imports read it.
//! Promises: comments and literals are blank, tests too; offsets and line numbers are those of the file.
//! Not here: macros; what they expand to is invisible.

use std::ops::Range;

use super::files::Text;
use super::lexer::{Region, RegionKind, regions};

/// One file of a crate.
pub struct Source<'a> {
    /// The file.
    pub text: &'a Text,
    /// Its code, everything else blank.
    pub code: String,
}

/// A struct with named fields.
pub struct Struct {
    /// Its name.
    pub name: String,
    /// Offset of the name.
    pub at: usize,
    /// Names of its fields.
    pub fields: Vec<String>,
    /// Names of the fields that other modules can see.
    pub visible: Vec<String>,
}

impl<'a> Source<'a> {
    /// The sources below `root`, such as `crates/flick-net/src`, without files of tests.
    pub fn below(texts: &'a [Text], root: &str) -> Vec<Self> {
        let ours =
            texts.iter().filter(|text| text.is_rust() && super::terms::table::is_below(&text.path, root));
        let sources: Vec<Self> = ours.map(Self::new).collect();
        let tests: Vec<String> = sources.iter().flat_map(Self::test_files).collect();
        let is_test = |path: &str| {
            let stem = path.trim_end_matches(".rs");
            path.contains("/tests/") || tests.iter().any(|test| super::terms::table::is_below(stem, test))
        };
        sources.into_iter().filter(|source| !is_test(&source.text.path)).collect()
    }

    /// Reads one file.
    pub fn new(text: &'a Text) -> Self {
        let mut code = code_only(&text.text);
        for range in test_modules(&code) {
            blank(&mut code, range);
        }
        Self { text, code }
    }

    /// The line of an offset, from 1.
    pub fn line(&self, at: usize) -> usize {
        1 + self.code[..at].matches('\n').count()
    }

    /// Offsets at which `word` stands as a word of the code.
    pub fn words(&self, word: &str) -> Vec<usize> {
        whole_words(&self.code, word)
    }

    /// The structs with named fields.
    pub fn structs(&self) -> Vec<Struct> {
        let after = |at: usize| at + "struct".len();
        self.words("struct").into_iter().filter_map(|at| self.struct_at(after(at))).collect()
    }

    fn struct_at(&self, after: usize) -> Option<Struct> {
        let at = after + (self.code[after..].len() - self.code[after..].trim_start().len());
        let name = identifier(&self.code[at..]);
        let open = at + self.code[at..].find(['{', ';', '('])?;
        if !self.code[open..].starts_with('{') {
            return None;
        }
        let body = open + 1..matching(&self.code, open)?;
        let (mut fields, mut visible) = (Vec::new(), Vec::new());
        for part in split(&self.code[body]) {
            let Some((front, _)) = part.split_once(':') else { continue };
            let field = front.split_whitespace().next_back().unwrap_or_default().to_owned();
            if !whole_words(front, "pub").is_empty() {
                visible.push(field.clone());
            }
            fields.push(field);
        }
        Some(Struct { name: name.to_owned(), at, fields, visible })
    }

    /// The files, without their ending, of modules that exist in tests only: `#[cfg(test)] mod name;`.
    fn test_files(&self) -> Vec<String> {
        let stem = self.text.path.trim_end_matches(".rs");
        let is_root = ["/lib", "/main", "/mod"].iter().any(|root| stem.ends_with(root));
        let base = if is_root { stem.rsplit_once('/').map_or("", |(base, _)| base) } else { stem };
        let code = code_only(&self.text.text);
        let modules = whole_words(&code, "mod").into_iter().filter(|at| is_for_tests(&code[..*at]));
        modules
            .filter_map(|at| {
                let rest = code[at + 3..].trim_start();
                let name = identifier(rest);
                rest[name.len()..].trim_start().starts_with(';').then(|| format!("{base}/{name}"))
            })
            .collect()
    }
}

/// The code of a text with everything else replaced by spaces.
fn code_only(text: &str) -> String {
    let mut code = text.to_owned();
    for Region { kind, range } in regions(text) {
        if kind != RegionKind::Code {
            blank(&mut code, range);
        }
    }
    code
}

/// Replaces a range by as many spaces, line ends kept.
fn blank(code: &mut String, range: Range<usize>) {
    let spaces: String =
        code[range.clone()].bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect();
    code.replace_range(range, &spaces);
}

/// Inline modules of tests.
fn test_modules(code: &str) -> Vec<Range<usize>> {
    let modules = whole_words(code, "mod").into_iter().filter(|at| is_for_tests(&code[..*at]));
    modules
        .filter_map(|at| {
            let open = at + code[at..].find(['{', ';'])?;
            code[open..].starts_with('{').then(|| matching(code, open).map(|end| at..end + 1))?
        })
        .collect()
}

/// Whether the attributes that end `before` the item keep it to tests.
fn is_for_tests(before: &str) -> bool {
    let before = before.trim_end().trim_end_matches("pub(crate)").trim_end_matches("pub(super)");
    let mut rest = before.trim_end_matches("pub").trim_end();
    while rest.ends_with(']') {
        let Some(start) = rest.rfind("#[") else { return false };
        let attribute = &rest[start..];
        if attribute.starts_with("#[cfg(")
            && !whole_words(attribute, "test").is_empty()
            && !attribute.contains("not(")
        {
            return true;
        }
        rest = rest[..start].trim_end();
    }
    false
}

/// The bracket that closes the one at `open`.
pub fn matching(code: &str, open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' | b'(' | b'[' => depth += 1,
            b'}' | b')' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

/// The parts between commas outside of brackets.
pub fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    let bytes = list.as_bytes();
    for (at, byte) in list.bytes().enumerate() {
        let is_arrow = byte == b'>' && at > 0 && bytes[at - 1] == b'-';
        match byte {
            b'{' | b'(' | b'[' | b'<' => depth += 1,
            b'}' | b')' | b']' => depth -= 1,
            b'>' if !is_arrow => depth -= 1,
            b',' if depth == 0 => {
                parts.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[start..]);
    parts
}

/// The identifier at the front.
pub fn identifier(code: &str) -> &str {
    &code[..code.bytes().take_while(|byte| is_word(*byte)).count()]
}

/// Offsets at which `word` stands as a whole word.
pub fn whole_words(code: &str, word: &str) -> Vec<usize> {
    let bytes = code.as_bytes();
    let is_whole = |at: &usize| {
        let end = at + word.len();
        (*at == 0 || !is_word(bytes[at - 1])) && bytes.get(end).is_none_or(|next| !is_word(*next))
    };
    code.match_indices(word).map(|(at, _)| at).filter(is_whole).collect()
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

#[cfg(test)]
mod tests {
    use super::{Source, split};
    use crate::tidy::files::Text;

    fn text(path: &str, text: &str) -> Text {
        Text { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn tests_comments_and_literals_are_blank() {
        let file = text("a.rs", "a(\"b\"); // c ü\n#[cfg(test)]\nmod tests {\n    fn d() {}\n}\ne();\n");
        let source = Source::new(&file);
        assert_eq!(source.code.split_whitespace().collect::<Vec<_>>(), ["a(", ");", "#[cfg(test)]", "e();"]);
        let at = source.code.find("e()").expect("it is there");
        assert_eq!(source.line(at), 6);
    }

    #[test]
    fn files_of_tests_are_left_out() {
        let texts = [
            text("crates/a/src/lib.rs", "#[cfg(test)]\nmod model;\nmod b;\n#[cfg(not(test))]\nmod c;"),
            text("crates/a/src/model.rs", ""),
            text("crates/a/src/model/deep.rs", ""),
            text("crates/a/src/b.rs", "#[cfg(all(test, loom))]\nmod tests;"),
            text("crates/a/src/b/tests.rs", ""),
            text("crates/a/src/c.rs", ""),
            text("crates/a/tests/d.rs", ""),
        ];
        let left: Vec<_> =
            Source::below(&texts, "crates/a").iter().map(|source| source.text.path.clone()).collect();
        assert_eq!(left, ["crates/a/src/lib.rs", "crates/a/src/b.rs", "crates/a/src/c.rs"]);
    }

    #[test]
    fn fields_are_counted() {
        let code = "pub struct A<T: B> {\n    #[c(d)]\n    pub a: E<F, G>,\n    b: fn(u8, u8) -> u8,\n    pub(crate) c: [u8; 2],\n}\nstruct H(u8);\nstruct I;\n";
        let file = text("a.rs", code);
        let structs = Source::new(&file).structs();
        assert_eq!(structs.len(), 1);
        assert_eq!((structs[0].name.as_str(), structs[0].fields.join(" ")), ("A", "a b c".to_owned()));
        assert_eq!(structs[0].visible, ["a", "c"]);
    }

    #[test]
    fn lists_are_split_outside_of_brackets() {
        assert_eq!(split("a<b, c>, d(e, f), g"), ["a<b, c>", " d(e, f)", " g"]);
    }
}

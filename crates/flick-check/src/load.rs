//! The files of a program: the program itself and the files that its `use` lines import, each once.
//! Promises: cyclic `use` lines terminate; at most `FILES_MAX` files.
//! Not here: I/O. The caller provides the texts.

use flick_syntax::ast::{self, AstNode};

use crate::diagnostic::{Diagnostic, Sink, Sources};
use crate::hir::Span;
use crate::limits::FILES_MAX;
use crate::report;
use crate::report::syntax::FromParser;

/// A parsed file.
pub(crate) struct File {
    pub(crate) id: u32,
    /// Its name in `use` lines; empty: it is the program.
    pub(crate) name: String,
    pub(crate) tree: ast::File,
    /// Prefix of the names of its declarations in the tables: `n.` for a file that is only imported as `n`.
    pub(crate) prefix: String,
    /// Names of the files that it imports, and their ids.
    pub(crate) aliases: Vec<(String, u32)>,
}

/// Parts of the sources that the parser did not understand; errors in those parts are likely follow-up errors.
#[derive(Default)]
pub(crate) struct SyntaxDamage {
    /// Declarations that contain an error.
    pub(crate) broken: Vec<Span>,
    /// Whether a declaration was lost, so that a missing name may not be an error.
    pub(crate) names_lost: bool,
}

/// Maps the name in a `use` line to a name for messages and a text.
pub type Loader<'a> = &'a dyn Fn(&str) -> Option<(String, String)>;

/// Parses the program and everything it imports.
pub(crate) fn load(
    name: &str,
    text: &str,
    loader: Loader<'_>,
    sources: &mut Sources,
    sink: &mut Sink,
) -> (Vec<File>, SyntaxDamage) {
    let mut damage = SyntaxDamage::default();
    let mut files = vec![parse(name, text, sources, sink, &mut damage)];
    let mut known: Vec<ImportedFile> = Vec::new();
    let mut next = 0;
    while next < files.len() {
        let id = files[next].id;
        let mut spans: Vec<(String, Span)> = Vec::new();
        for use_decl in files[next].tree.uses().collect::<Vec<_>>() {
            let Some(used) = use_decl.name() else { continue };
            let span = span_of(id, used.range());
            let index = match known.iter().position(|known| known.name == used.text()) {
                Some(index) => index,
                None if files.len() >= FILES_MAX => {
                    sink.push(report::names::too_many_files(span, FILES_MAX));
                    continue;
                }
                None => {
                    let file = loader(used.text()).map(|(name, text)| {
                        let file = parse(&name, &text, sources, sink, &mut damage);
                        files.push(File { name: used.text().to_owned(), ..file });
                        files.len() - 1
                    });
                    if file.is_none() {
                        sink.push(report::names::use_not_found(span, used.text()));
                        damage.names_lost = true;
                    }
                    known.push(ImportedFile { name: used.text().to_owned(), file, is_open: false });
                    known.len() - 1
                }
            };
            let Some(alias) = use_decl.alias() else {
                known[index].is_open = true;
                continue;
            };
            let span = span_of(id, alias.range());
            if let Some((_, first)) = spans.iter().find(|(name, _)| name == alias.text()) {
                sink.push(report::names::duplicate(span, "library", alias.text(), first.clone()));
                continue;
            }
            spans.push((alias.text().to_owned(), span));
            if let Some(file) = known[index].file {
                let file_id = files[file].id;
                files[next].aliases.push((alias.text().to_owned(), file_id));
            }
        }
        next += 1;
    }
    set_prefixes(&mut files, &known);
    (files, damage)
}

/// A file that `use` lines import.
struct ImportedFile {
    name: String,
    /// Index, if the file was found.
    file: Option<usize>,
    /// Whether some file imports it without a name.
    is_open: bool,
}

/// Prefixes the names of files that are only imported under a name. If two files have the same name, the names of the
/// second one cannot be written in files that do not import it.
fn set_prefixes(files: &mut [File], known: &[ImportedFile]) {
    let aliases: Vec<(String, u32)> = files.iter().flat_map(|file| file.aliases.clone()).collect();
    let mut taken: Vec<String> = Vec::new();
    for used in known.iter().filter(|used| !used.is_open) {
        let Some(file) = used.file else { continue };
        let id = files[file].id;
        let Some((alias, _)) = aliases.iter().find(|(_, target)| *target == id) else { continue };
        let mut prefix = format!("{alias}.");
        if taken.contains(&prefix) {
            prefix = format!("{alias}#{id}.");
        }
        taken.push(prefix.clone());
        files[file].prefix = prefix;
    }
}

fn parse(name: &str, text: &str, sources: &mut Sources, sink: &mut Sink, damage: &mut SyntaxDamage) -> File {
    let id = sources.add(name, text);
    let parse = flick_syntax::parse(text);
    let tree = parse.file();
    for error in parse.errors() {
        let is_last = match report::syntax::from_parser(id, text, &tree, error) {
            FromParser::Error(diagnostic) => {
                sink.push(diagnostic);
                false
            }
            FromParser::NotYet(diagnostic) => {
                sink.push(diagnostic);
                true
            }
        };
        let around = tree.decls().find(|decl| {
            // Trivia between declarations belongs to the declaration above: an error there is about its end.
            let next_start =
                decl.syntax().next_sibling().map_or(text.len(), |next| ast::range_of(&next).start);
            (decl.range().start..=next_start.max(decl.range().end)).contains(&error.range.start)
        });
        match around {
            Some(decl) => damage.broken.push(span_of(id, decl.range())),
            None => damage.names_lost = true,
        }
        // A declaration with a damaged heading may have lost its name.
        damage.names_lost = true;
        if is_last {
            break;
        }
    }
    File { id, name: String::new(), tree, prefix: String::new(), aliases: Vec::new() }
}

/// Parses one text and returns the diagnostics of the parser, under the codes of a whole check.
///
/// Shape:  imports are not loaded; `name` is used in messages.
/// Errors: the diagnostics; the tree is complete in either case.
pub fn check_syntax(name: &str, text: &str) -> (flick_syntax::Parse, Vec<Diagnostic>, Sources) {
    let mut sources = Sources::default();
    let mut sink = Sink::default();
    parse(name, text, &mut sources, &mut sink, &mut SyntaxDamage::default());
    (flick_syntax::parse(text), sink.into_sorted(), sources)
}

/// Converts a range of the syntax tree to a span.
pub(crate) fn span_of(file: u32, range: std::ops::Range<usize>) -> Span {
    Span { file, range: range.start as u32..range.end as u32 }
}

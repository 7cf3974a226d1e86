//! Properties that must hold for any text, and for any bytes from a peer, one function per target.

use flick_check::Severity;
use flick_compiler::{Checked, Input};
use flick_ir::data::Module;
use flick_syntax::limits::{ERRORS_MAX, NESTING_DEPTH_MAX};
use flick_syntax::{Parse, SyntaxNode};

pub use crate::spoken::{messages, programs, rewritten};

use crate::limits::FORMATTED_BYTES_MAX;
use crate::speakers::EXAMPLES;

/// Nodes that one level of nesting may add; as in the tests of the parser.
const NODES_PER_LEVEL_MAX: usize = 6;

/// Text to tree: the tree is the text, errors lie in it, the height is bounded; a text without errors has a layout
/// that has the same tree and is a layout already.
pub fn text(data: &[u8]) {
    let source = String::from_utf8_lossy(data);
    let parse = flick_syntax::parse(&source);
    assert_eq!(parse.syntax().text(), source.as_ref(), "the tree is not the text");
    assert!(parse.errors().len() <= ERRORS_MAX);
    for error in parse.errors() {
        assert!(source.get(error.range.clone()).is_some(), "{error:?} does not lie in the source");
        assert!(!error.title.is_empty() && !error.help.is_empty());
    }
    let height_max = (NESTING_DEPTH_MAX as usize + 4) * NODES_PER_LEVEL_MAX;
    assert!(height(&parse.syntax()) <= height_max, "the tree is too high");
    if parse.errors().is_empty() && source.len() <= FORMATTED_BYTES_MAX {
        layout(&parse);
    }
}

fn layout(before: &Parse) {
    let formatted = flick_syntax::format(before);
    let after = flick_syntax::parse(&formatted);
    assert_eq!(after.errors(), [], "a layout with errors:\n{formatted}");
    assert_eq!(shape(before), shape(&after), "a layout with another tree:\n{formatted}");
    assert_eq!(flick_syntax::format(&after), formatted, "a layout that is none");
}

/// Text to meaning: a program exactly when there is no error; every diagnostic can be shown.
pub fn checker(data: &[u8]) -> Checked {
    let input = Input::text("fuzz.flick", String::from_utf8_lossy(data)).with_files(EXAMPLES);
    let checked =
        flick_compiler::check(&input).unwrap_or_else(|failure| panic!("no file is read: {failure}"));
    let has_errors = checked.diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    assert_eq!(checked.program.is_none(), has_errors, "a program and an error, or neither");
    for diagnostic in &checked.diagnostics {
        assert!(!flick_check::render(diagnostic, &checked.sources, false).is_empty());
    }
    checked
}

/// Text to code: an accepted program with a process is lowered to code that is well-formed, and reads back as written.
/// Returns the code.
pub fn ir(data: &[u8]) -> Option<Module> {
    let Checked { program, sources, .. } = checker(data);
    let program = program.filter(|program| program.process.is_some())?;
    // A program that exceeds a limit which only its code shows is refused here.
    let module = flick_compiler::lower(&program, &sources).ok()?;
    let text = flick_ir::text::print(&module);
    let read = flick_ir::text::parse(&text).unwrap_or_else(|error| panic!("{error:?} in\n{text}"));
    assert_eq!(flick_ir::text::print(&read), text, "code does not read back as written");
    Some(module)
}

fn height(root: &SyntaxNode) -> usize {
    let mut deepest = 0;
    let mut open = vec![(root.clone(), 1)];
    while let Some((node, depth)) = open.pop() {
        deepest = deepest.max(depth);
        open.extend(node.children().map(|child| (child, depth + 1)));
    }
    deepest
}

/// The tree without white space and comments, one node or token to a line.
fn shape(parse: &Parse) -> Vec<String> {
    let elements = parse.syntax().descendants_with_tokens();
    let solid = elements.filter(|element| !element.kind().is_trivia());
    solid
        .map(|element| match element.into_token() {
            Some(token) => format!("{:?} {}", token.kind(), token.text()),
            None => "(".to_owned(),
        })
        .collect()
}

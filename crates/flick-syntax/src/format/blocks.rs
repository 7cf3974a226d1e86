//! The items of a grammar and the braces around them: which of these stand on one line, which are spread over several.
//! Promises: what is spread in the source stays spread; a case of a `switch` with several fields is always spread.

use std::collections::HashSet;

use rowan::{NodeOrToken, TextRange, TextSize};

use crate::syntax_kind::SyntaxKind::{self, *};
use crate::syntax_kind::{SyntaxNode, SyntaxToken};

/// Returns the outermost item that starts with `token`, a direct child of `node`.
pub(super) fn item_at(node: &SyntaxNode, token: &SyntaxToken) -> Option<SyntaxNode> {
    let start = token.text_range().start();
    let starting = node.ancestors().take_while(|node| node.text_range().start() == start);
    starting.filter(|node| is_item(node.kind())).last()
}

fn is_item(kind: SyntaxKind) -> bool {
    is_wire_item(kind)
        || matches!(kind, BitField | UnitArm | UnitElse | RecordField | EnumVariant | VariantCase)
}

fn is_wire_item(kind: SyntaxKind) -> bool {
    kind == UnitLiteral || is_item_of_its_own(kind)
}

fn is_item_of_its_own(kind: SyntaxKind) -> bool {
    matches!(kind, UnitProperty | UnitField | UnitVar | UnitBits | UnitCheck | UnitSwitch)
}

/// Says whether items of a grammar stand between the braces of this construct.
pub(super) fn holds_items(kind: SyntaxKind) -> bool {
    matches!(kind, UnitDecl | UnitSwitch | UnitArm | UnitElse | UnitBits)
}

/// The braces of a source whose items stand on lines of their own.
pub(super) struct Spread {
    blocks: HashSet<SyntaxNode>,
}

impl Spread {
    /// Looks at all braces of grammars below `root`.
    ///
    /// Cost: linear in the tree.
    pub(super) fn of(root: &SyntaxNode) -> Spread {
        let mut line_breaks = Vec::new();
        let mut full_cases = Vec::new();
        let mut blocks = Vec::new();
        for element in root.descendants_with_tokens() {
            match element {
                NodeOrToken::Token(token) if token.kind() == LineBreak => {
                    line_breaks.push(token.text_range().start());
                }
                NodeOrToken::Node(node) if holds_items(node.kind()) => {
                    if has_several(&node) {
                        full_cases.push(node.text_range().start());
                    }
                    blocks.push(node);
                }
                _ => {}
            }
        }
        blocks.retain(|node| {
            let holds_full_case = has_one_in(&full_cases, node.text_range());
            let range = range_between_braces(node);
            node.kind() == UnitDecl
                || holds_full_case
                || range.is_some_and(|range| has_one_in(&line_breaks, range))
        });
        Spread { blocks: blocks.into_iter().collect() }
    }

    /// Says whether the items between the braces of `node` stand on lines of their own.
    pub(super) fn contains(&self, node: &SyntaxNode) -> bool {
        self.blocks.contains(node)
    }
}

/// Returns whether one of the sorted `offsets` lies in `range`.
fn has_one_in(offsets: &[TextSize], range: TextRange) -> bool {
    let first = offsets.partition_point(|offset| *offset < range.start());
    offsets.get(first).is_some_and(|offset| *offset < range.end())
}

/// Says whether a case holds more than one item that is no literal.
fn has_several(node: &SyntaxNode) -> bool {
    matches!(node.kind(), UnitArm | UnitElse)
        && node.children().filter(|child| is_item_of_its_own(child.kind())).count() > 1
}

/// Returns where the items of `node` stand; `None` if there is nothing but white space.
fn range_between_braces(node: &SyntaxNode) -> Option<TextRange> {
    let mut within = node.children_with_tokens().skip_while(|element| element.kind() != LBrace);
    let start = within.next()?.text_range().end();
    let mut is_empty = true;
    for element in within {
        if element.kind() == RBrace {
            return (!is_empty).then(|| TextRange::new(start, element.text_range().start()));
        }
        is_empty &= matches!(element.kind(), LineBreak | Whitespace);
    }
    None
}

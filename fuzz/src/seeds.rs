//! Pieces of the project's own programs, by kind of node: what a changed program gets its new parts from.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

use flick_syntax::{SyntaxKind, SyntaxNode};

use crate::limits::{PIECE_BYTES_MAX, PIECES_MAX};

/// The variable that names the directory of the seeds.
const SEEDS_VARIABLE: &str = "FLICK_FUZZ_SEEDS";

/// A piece of a program, and the column it began at.
pub struct Piece {
    pub text: String,
    pub column: usize,
}

/// Pieces by the kind of their node.
#[derive(Default)]
pub struct Seeds {
    by_kind: BTreeMap<SyntaxKind, Vec<Piece>>,
}

impl Seeds {
    /// Those of this process, read once; none where the directory was not named.
    pub fn get() -> &'static Seeds {
        static SEEDS: OnceLock<Seeds> = OnceLock::new();
        SEEDS.get_or_init(|| match std::env::var_os(SEEDS_VARIABLE) {
            Some(directory) => Seeds::read(Path::new(&directory)),
            None => Seeds::default(),
        })
    }

    fn read(directory: &Path) -> Seeds {
        let mut paths: Vec<_> =
            std::fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        paths.sort(); // the order of the directory is not the same everywhere
        let mut seeds = Seeds::default();
        for text in paths.iter().filter_map(|path| std::fs::read_to_string(path).ok()) {
            for node in flick_syntax::parse(&text).syntax().descendants() {
                seeds.add(&text, &node);
            }
        }
        seeds
    }

    fn add(&mut self, source: &str, node: &SyntaxNode) {
        let text = node.text().to_string();
        let pieces = self.by_kind.entry(node.kind()).or_default();
        if text.is_empty() || text.len() > PIECE_BYTES_MAX || pieces.len() >= PIECES_MAX {
            return;
        }
        let column = column_of(source, usize::from(node.text_range().start()));
        if !pieces.iter().any(|piece| piece.text == text) {
            pieces.push(Piece { text, column });
        }
    }

    /// The pieces of a kind.
    pub fn of(&self, kind: SyntaxKind) -> &[Piece] {
        self.by_kind.get(&kind).map_or(&[], Vec::as_slice)
    }
}

/// Bytes between `offset` and the start of its line.
pub fn column_of(source: &str, offset: usize) -> usize {
    offset - source[..offset].rfind('\n').map_or(0, |at| at + 1)
}

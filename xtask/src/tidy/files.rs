//! The text files of the repository, and the findings of a check.

use std::fmt;
use std::fs;
use std::path::Path;

/// Directories that are not part of the repository.
const SKIPPED: &[&str] = &["target", ".git", ".venv", "__pycache__", "node_modules"];
/// Deepest directory looked into.
const DEPTH_MAX: usize = 16;
/// Endings of the files that are read.
const ENDINGS: &[&str] = &[
    "rs", "toml", "md", "flick", "scn", "sh", "py", "yml", "yaml", "json", "conf", "txt", "ir", "run", "svg",
    "dot", "html", "css", "vtc", "cfg", "ksy", "js", "tree",
];

/// One file of the repository.
pub struct Text {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its content.
    pub text: String,
}

impl Text {
    /// Whether it is Rust.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether its path says that it is a test.
    pub fn is_test(&self) -> bool {
        self.path.contains("/tests/") || self.path.ends_with("/tests.rs")
    }

    /// Its lines with their numbers, from 1.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    /// A finding in this file.
    pub fn finding(&self, line: usize, what: impl Into<String>) -> Finding {
        Finding { path: self.path.clone(), line, what: what.into() }
    }
}

/// Something that must be changed.
pub struct Finding {
    /// Path from the root.
    pub path: String,
    /// Line, from 1.
    pub line: usize,
    /// The problem and its remedy.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Reads every text below `root`.
///
/// Errors: a directory or file that cannot be read, in words.
pub fn read_all(root: &Path) -> Result<Vec<Text>, String> {
    let mut texts = Vec::new();
    read_dir(root, root, 0, &mut texts)?;
    texts.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(texts)
}

fn read_dir(root: &Path, dir: &Path, depth: usize, texts: &mut Vec<Text>) -> Result<(), String> {
    if depth > DEPTH_MAX {
        return Err(format!("{} is nested too deeply", dir.display()));
    }
    let describe = |error: std::io::Error| format!("cannot read {}: {error}", dir.display());
    for entry in fs::read_dir(dir).map_err(describe)? {
        let entry = entry.map_err(describe)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(describe)?);
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if kind.is_dir() {
            if !SKIPPED.contains(&name.as_ref()) {
                read_dir(root, &path, depth + 1, texts)?;
            }
            continue;
        }
        let ending = name.rsplit('.').next().unwrap_or_default();
        if !kind.is_file() || !ENDINGS.contains(&ending) {
            continue;
        }
        // A file that is not UTF-8 is data of a test.
        if let Ok(text) = fs::read_to_string(&path) {
            let path = path.strip_prefix(root).expect("the walk stays below the root");
            texts.push(Text { path: path.to_string_lossy().replace('\\', "/"), text });
        }
    }
    Ok(())
}

//! The texts of all diagnostics, one file per family of codes.
//! Promises: code that checks never contains a title itself, so that one error has one text wherever it is found.

pub(crate) mod ask;
pub(crate) mod bounds;
pub(crate) mod channels;
pub(crate) mod grammar;
pub(crate) mod lowering;
pub(crate) mod merge;
pub(crate) mod names;
pub(crate) mod state;
pub(crate) mod structured;
pub(crate) mod syntax;
pub(crate) mod types;
pub(crate) mod unsatisfiable;
pub(crate) mod unsupported;
pub(crate) mod values;

/// Most edits between two names that count as a misspelling.
const EDITS_MAX: usize = 2;
/// Longest name that is compared; the comparison is quadratic.
const COMPARED_CHARS_MAX: usize = 40;
/// Most names listed in a message.
const LISTED_MAX: usize = 12;

/// Finds the candidate closest to `name`, if any is close enough.
pub fn similar<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = EDITS_MAX.min(name.chars().count().div_ceil(3));
    let scored = candidates
        .into_iter()
        .filter(|candidate| *candidate != name)
        .map(|candidate| (edits(name, candidate), candidate));
    scored.filter(|(distance, _)| *distance <= allowed).min().map(|(_, candidate)| candidate)
}

/// Returns a number with its noun, which has an `s` unless the number is 1: `1 byte`, `2 bytes`.
pub fn counted(count: impl std::fmt::Display, noun: &str) -> String {
    let count = count.to_string();
    let ending = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// Returns the edit distance of two names: insertions, deletions, substitutions, transpositions.
fn edits(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().flat_map(char::to_lowercase).take(COMPARED_CHARS_MAX).collect();
    let b: Vec<char> = b.chars().flat_map(char::to_lowercase).take(COMPARED_CHARS_MAX).collect();
    let width = b.len() + 1;
    let mut cost = vec![0usize; (a.len() + 1) * width];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            cost[i * width + j] = if i == 0 || j == 0 {
                i + j
            } else {
                let change = usize::from(a[i - 1] != b[j - 1]);
                let mut best = cost[(i - 1) * width + j - 1] + change;
                best = best.min(cost[(i - 1) * width + j] + 1).min(cost[i * width + j - 1] + 1);
                if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    best = best.min(cost[(i - 2) * width + j - 2] + 1);
                }
                best
            };
        }
    }
    cost[a.len() * width + b.len()]
}

/// Lists names for a message: `a`, `b` and `c`; a long list is truncated.
pub(crate) fn list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let shown: Vec<String> = names.iter().take(LISTED_MAX).map(|name| format!("`{name}`")).collect();
    match shown.as_slice() {
        [] => "none".to_owned(),
        [only] => only.clone(),
        _ if names.len() > shown.len() => {
            format!("{} and {} more", shown.join(", "), names.len() - shown.len())
        }
        [start @ .., last] => format!("{} and {last}", start.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{list, similar};

    #[test]
    fn similar_finds_misspelled_names() {
        for (name, expected) in [
            ("bakcends", Some("backends")),
            ("clinet", Some("client")),
            ("kye", Some("key")),
            ("opaque", None),
        ] {
            assert_eq!(similar(name, ["backends", "client", "key"]), expected, "{name}");
        }
    }

    #[test]
    fn list_formats_names_as_prose() {
        assert_eq!(list(["a"]), "`a`");
        assert_eq!(list(["a", "b", "c"]), "`a`, `b` and `c`");
    }
}

//! Subjects of commits: a warning, no finding, for what cannot be changed any more.
//! Promises: only commits after the one that added this file count; without git or history there is nothing to say.

use crate::run;

/// The file whose first commit the check starts from.
const SINCE: &str = "xtask/src/tidy/commits.rs";
/// Most characters of a subject.
const SUBJECT_CHARACTERS_MAX: usize = 72;
/// Verbs that end like the forms they are not.
const VERBS: &[&str] = &[
    "address", "bring", "bypass", "compress", "embed", "express", "feed", "focus", "need", "pass", "process",
    "speed", "string", "suppress", "embed", "shed", "seed", "discuss", "exceed", "proceed",
];

/// Prints a warning for each subject that is not `<crate or area>: <imperative>` or too long.
pub fn warn_of_subjects() {
    let log = |args: &[&str]| run::output(run::command("git", args)).unwrap_or_default();
    let added = log(&["log", "--diff-filter=A", "--format=%H", "--", SINCE]);
    let Some(added) = added.lines().last() else { return };
    for line in log(&["log", "--no-merges", "--format=%h %s", &format!("{added}..HEAD")]).lines() {
        let Some((hash, subject)) = line.split_once(' ') else { continue };
        if let Some(fault) = fault(subject) {
            println!("warning: commit {hash} `{subject}`: {fault}");
        }
    }
}

/// Returns the fault of a subject, if it has one. Those that git writes for a revert are fine.
fn fault(subject: &str) -> Option<String> {
    if subject.starts_with("Revert \"") {
        return None;
    }
    let count = subject.chars().count();
    if count > SUBJECT_CHARACTERS_MAX {
        return Some(format!("{count} characters, at most {SUBJECT_CHARACTERS_MAX}"));
    }
    let is_area = |area: &str| {
        let area = area.trim();
        !area.is_empty() && area.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_./".contains(&byte))
    };
    let Some((areas, rest)) = subject.split_once(": ").filter(|(areas, _)| areas.split(',').all(is_area))
    else {
        return Some("write `<crate or area>: <imperative>`".to_owned());
    };
    let verb = rest.split(' ').next().unwrap_or_default().to_ascii_lowercase();
    let is_other_form = ["ed", "ing", "s"].iter().any(|ending| verb.ends_with(ending));
    if verb.is_empty() || (is_other_form && !VERBS.contains(&verb.as_str())) {
        return Some(format!("`{areas}: {verb}` is no imperative, such as `{areas}: rename`"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::{SUBJECT_CHARACTERS_MAX, fault};

    #[test]
    fn subjects_name_an_area_and_a_command() {
        for fine in [
            "flick-net: name the queue",
            "Revert \"Name the queue\"",
            "docs, xtask: pass the path",
            "docs/guide: split it",
        ] {
            assert_eq!(fault(fine), None, "{fine}");
        }
        for wrong in
            ["Name the queue", "flick-net: renamed it", "flick-net: renames it", "the net: name it", "net: "]
        {
            assert!(fault(wrong).is_some(), "{wrong}");
        }
        let long = format!("net: {}", "a".repeat(SUBJECT_CHARACTERS_MAX));
        assert!(fault(&long).is_some());
    }
}

//! Writes `docs/http-compliance.md`.

use std::fmt::Write as _;

use super::requirements::{Requirement, Rfc};
use super::{Report, Verdict};

/// RFCs whose requirements the page lists; of others, code quotes single rules.
const LISTED: [u32; 2] = [9110, 9112];
/// Most characters of a line.
const WIDTH: usize = 120;

const INTRODUCTION: &str = "\
# HTTP compliance

What RFC 9110 and RFC 9112 require of an intermediary, and what flick does about it. `cargo xtask rfc` writes this page
from the requirements in `docs/rfc` and the citations in the code; do not edit it.

The lines below a requirement obey it. Where it is *partly* or *not* obeyed, the limitation says what is missing.
Requirements on user agents, origin servers, caches, authentication and TLS are not listed.
";

/// Returns the whole page.
pub(super) fn text(report: &Report<'_>) -> String {
    let mut page = format!("{INTRODUCTION}\n{}\n", summary(report));
    for rfc in report.rfcs.iter().filter(|rfc| LISTED.contains(&rfc.number)) {
        let _ = write!(page, "\n## RFC {}: {}\n", rfc.number, rfc.title);
        let mut section = "";
        for requirement in rfc.requirements.iter().filter(|requirement| requirement.is_absolute()) {
            if requirement.section != section {
                section = &requirement.section;
                let number = rfc.number;
                let _ = write!(page, "\n### Section {section} of RFC {number}\n");
            }
            page.push_str(&entry(report, rfc, requirement));
        }
    }
    page
}

/// Returns how many requirements are obeyed.
pub(super) fn summary(report: &Report<'_>) -> String {
    let mut counts = [0; 3];
    for rfc in report.rfcs.iter().filter(|rfc| LISTED.contains(&rfc.number)) {
        for requirement in rfc.requirements.iter().filter(|requirement| requirement.is_absolute()) {
            counts[report.verdict(rfc, requirement) as usize] += 1;
        }
    }
    let [obeyed, partly, not] = counts;
    format!("{} requirements: {obeyed} obeyed, {partly} partly, {not} not.", obeyed + partly + not)
}

/// One requirement, where it is obeyed, and its limitation.
fn entry(report: &Report<'_>, rfc: &Rfc<'_>, requirement: &Requirement) -> String {
    let mut entry = String::from("\n");
    quote(&requirement.text, &mut entry);
    entry.push('\n');
    for citation in report.of(rfc, requirement) {
        let (path, obeys) = (&citation.text.path, &citation.obeys);
        let _ = writeln!(entry, "- [{path}](../{path}):\n  `` {obeys} ``");
    }
    let word = if report.verdict(rfc, requirement) == Verdict::Partly { "partly" } else { "not" };
    if let Some(anchor) = &requirement.limitation {
        let _ = writeln!(entry, "- *{word}*: [limitation](limitations.md#{anchor})");
    }
    entry
}

/// Writes a block quote in lines of at most [`WIDTH`] characters.
fn quote(text: &str, out: &mut String) {
    let mut line = String::from(">");
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = String::from(">");
        }
        line.push(' ');
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}

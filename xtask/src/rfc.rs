//! The rules of RFCs, the lines that obey them, and the page that shows both.
//! Promises: a quotation is word for word in `docs/rfc`; each requirement there is cited by a line of code, or names
//! the limitation that says what is not done.
//! Source: s2n-quic's citations, `//=` for the section and `//#` for its words; in flick's own language `#=` and `##`.

mod citations;
mod page;
mod requirements;

use std::fs;

use crate::run::{self, Outcome};
use crate::tidy::files::{self, Finding, Text};
use citations::Citation;
use requirements::{Requirement, Rfc};

/// Path of the generated page.
const PAGE: &str = "docs/http-compliance.md";
/// Path of the limitations.
const LIMITATIONS: &str = "docs/limitations.md";

/// Requirements of RFCs, and the citations of them in the repository.
struct Report<'t> {
    rfcs: Vec<Rfc<'t>>,
    citations: Vec<Citation<'t>>,
}

/// Degree to which a requirement is obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Lines of code cite it.
    Obeyed,
    /// Lines of code cite it, and a limitation says what is missing.
    Partly,
    /// A limitation says so.
    Not,
}

impl<'t> Report<'t> {
    /// Reads requirements and citations; what cannot be read is a finding.
    fn new(texts: &'t [Text]) -> (Self, Vec<Finding>) {
        let (rfcs, mut findings) = requirements::load(texts);
        let (citations, wrong) = citations::find(texts);
        findings.extend(wrong);
        (Self { rfcs, citations }, findings)
    }

    /// Returns the citations of a requirement.
    fn of(&self, rfc: &Rfc<'_>, requirement: &Requirement) -> impl Iterator<Item = &Citation<'t>> {
        self.citations.iter().filter(|citation| {
            citation.rfc == rfc.number
                && citation.section == requirement.section
                && requirement.text.contains(&citation.quote)
        })
    }

    fn verdict(&self, rfc: &Rfc<'_>, requirement: &Requirement) -> Verdict {
        match (self.of(rfc, requirement).next(), &requirement.limitation) {
            (Some(_), None) => Verdict::Obeyed,
            (Some(_), Some(_)) => Verdict::Partly,
            (None, _) => Verdict::Not,
        }
    }

    /// Returns quotations that are not in `docs/rfc`, and requirements that are neither cited nor limited.
    fn findings(&self, texts: &[Text]) -> Vec<Finding> {
        let limitations = texts.iter().find(|text| text.path == LIMITATIONS);
        let anchors: Vec<String> = limitations.into_iter().flat_map(|text| anchors(&text.text)).collect();
        let mut findings = Vec::new();
        for citation in &self.citations {
            let known = self.rfcs.iter().filter(|rfc| rfc.number == citation.rfc);
            let mut all = known.flat_map(|rfc| &rfc.requirements);
            if !all.any(|one| one.section == citation.section && one.text.contains(&citation.quote)) {
                let (rfc, section) = (citation.rfc, &citation.section);
                let what = format!("docs/rfc has no such words in section {section} of RFC {rfc}");
                findings.push(citation.text.finding(citation.line, what));
            }
        }
        for rfc in &self.rfcs {
            for requirement in &rfc.requirements {
                findings.extend(self.finding(rfc, requirement, &anchors));
            }
        }
        findings
    }

    fn finding(&self, rfc: &Rfc<'_>, requirement: &Requirement, anchors: &[String]) -> Option<Finding> {
        let what = match &requirement.limitation {
            Some(anchor) if !anchors.contains(anchor) => format!("{LIMITATIONS} has no heading `{anchor}`"),
            None if self.of(rfc, requirement).next().is_none() => {
                "no line of code cites it: cite it where it is obeyed, or name a limitation".to_owned()
            }
            _ => return None,
        };
        Some(rfc.text.finding(requirement.line, what))
    }
}

/// Fails for a quotation that is in no RFC, for a requirement without a line of code or a limitation, and for a page
/// that is not current.
pub fn rules_are_cited(texts: &[Text]) -> Vec<Finding> {
    let (report, mut findings) = Report::new(texts);
    findings.extend(report.findings(texts));
    if let Some(page) = texts.iter().find(|text| text.path == PAGE)
        && page.text != page::text(&report)
    {
        findings.push(page.finding(1, "it is not current: run `cargo xtask rfc`"));
    }
    findings
}

/// Writes the page and prints a summary.
///
/// Errors: as [`rules_are_cited`] finds them, the page's age aside.
pub fn run() -> Outcome {
    let texts = files::read_all(&run::root())?;
    let (report, mut findings) = Report::new(&texts);
    findings.extend(report.findings(&texts));
    findings.iter().for_each(|finding| println!("{finding}"));
    let path = run::root().join(PAGE);
    fs::write(&path, page::text(&report))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    println!("{}\nwrote {PAGE}", page::summary(&report));
    if findings.is_empty() { Ok(()) } else { Err(format!("{} findings", findings.len())) }
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> impl Iterator<Item = String> {
    let headings = text.lines().filter_map(|line| line.strip_prefix('#'));
    headings.map(|heading| {
        let words = heading.trim_start_matches('#').trim().to_lowercase();
        let kept = words.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::rules_are_cited;
    use crate::tidy::files::Text;

    const RULES: &str = "rfc = 1\ntitle = \"One\"\n\n[[requirement]]\nsection = \"2\"\nlevel = \"MUST\"\n\
                         text = \"A server MUST count.\"\n";

    fn check(data: &str, code: &str, expected: &[&str]) {
        let text = |path: &str, text: &str| Text { path: path.to_owned(), text: text.to_owned() };
        let texts = [
            text("docs/rfc/rfc1.toml", data),
            text("docs/limitations.md", "## HTTP\n\n### Slow, and more\n"),
            text("stdlib/a.flick", code),
        ];
        let found: Vec<String> = rules_are_cited(&texts).iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn a_rule_is_cited_or_a_limitation() {
        check(RULES, "#= RFC 1 section 2\n## A server MUST\n## count.\ntype a = unit {};\n", &[]);
        check(RULES, "type a = unit {};\n", &["rfc1.toml:4: no line of code cites it"]);
        check(&format!("{RULES}limitation = \"slow-and-more\"\n"), "", &[]);
        check(&format!("{RULES}limitation = \"fast\"\n"), "", &["no heading `fast`"]);
    }

    #[test]
    fn a_quotation_is_word_for_word() {
        let cited = "#= RFC 1 section 2\n## A server MUST count.\ntype a = unit {};\n";
        check(
            RULES,
            &cited.replace("count.\n", "count twice.\n"),
            &["a.flick:1: docs/rfc has no such", "no line"],
        );
        check(
            RULES,
            &format!("{cited}{}", cited.replace("section 2", "section 3")),
            &["no such words in section 3"],
        );
        check(RULES, &format!("{cited}{}", cited.replace("RFC 1", "RFC 7")), &["of RFC 7"]);
        check(RULES, &format!("{cited}#= RFC 1 §2\n## A\n"), &["write `RFC <number> section <section>`"]);
        check(RULES, &format!("{cited}#= RFC 1 section 2\nx\n"), &["quotes nothing"]);
    }
}

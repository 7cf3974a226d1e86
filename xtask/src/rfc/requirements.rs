//! Reads `docs/rfc/*.toml`: what an RFC requires, word for word.

use serde::Deserialize;

use crate::tidy::files::{Finding, Text};

const DIRECTORY: &str = "docs/rfc/";

/// A file of `docs/rfc`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RfcFile {
    rfc: u32,
    title: String,
    requirement: Vec<Requirement>,
}

/// An RFC and what it requires.
pub(super) struct Rfc<'t> {
    /// The file.
    pub(super) text: &'t Text,
    /// Its number.
    pub(super) number: u32,
    /// Its title.
    pub(super) title: String,
    /// In the order of its sections.
    pub(super) requirements: Vec<Requirement>,
}

/// One sentence of an RFC.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Requirement {
    /// Section of the RFC that holds the sentence.
    pub(super) section: String,
    /// Its key word; `statement` for a sentence without one.
    pub(super) level: String,
    /// Its words.
    pub(super) text: String,
    /// The heading of the limitations that says what is not done.
    pub(super) limitation: Option<String>,
    /// Its line in the file.
    #[serde(skip)]
    pub(super) line: usize,
}

impl Requirement {
    /// Whether an implementation that does otherwise breaks the RFC.
    pub(super) fn is_absolute(&self) -> bool {
        self.level.starts_with("MUST")
    }
}

/// Reads all files; one that is not of the form is a finding.
pub(super) fn load(texts: &[Text]) -> (Vec<Rfc<'_>>, Vec<Finding>) {
    let (mut rfcs, mut findings) = (Vec::new(), Vec::new());
    let files = texts.iter().filter(|text| text.path.starts_with(DIRECTORY) && text.path.ends_with(".toml"));
    for text in files {
        let RfcFile { rfc: number, title, mut requirement } = match toml::from_str(&text.text) {
            Ok(file) => file,
            Err(error) => {
                findings.push(text.finding(1, error.to_string()));
                continue;
            }
        };
        let starts = text.lines().filter(|(_, line)| line.trim() == "[[requirement]]");
        for (one, (line, _)) in requirement.iter_mut().zip(starts) {
            one.line = line;
            findings.extend(wrong_level(one).map(|what| text.finding(line, what)));
        }
        rfcs.push(Rfc { text, number, title, requirements: requirement });
    }
    (rfcs, findings)
}

/// The level must be the key word of the text.
fn wrong_level(requirement: &Requirement) -> Option<String> {
    let is_right = match requirement.level.as_str() {
        "statement" => true,
        "MUST" | "SHOULD" => {
            let negated = format!("{} NOT", requirement.level);
            requirement.text.replace(&negated, "").contains(&requirement.level)
                || requirement.text.contains(&requirement.level) && !requirement.text.contains(&negated)
        }
        "MUST NOT" | "SHOULD NOT" | "MAY" => requirement.text.contains(&requirement.level),
        _ => false,
    };
    (!is_right).then(|| format!("`{}` is not the level of its text", requirement.level))
}

//! Finds citations in the sources.

use crate::tidy::files::{Finding, Text};

/// Longest shown part of a cited line, in characters.
const SHOWN_MAX: usize = 90;

/// Marks of a citation's section and words in one language.
struct Marks {
    ending: &'static str,
    section: &'static str,
    words: &'static str,
    comment: &'static str,
}

const MARKS: [Marks; 2] = [
    Marks { ending: ".rs", section: "//=", words: "//#", comment: "//" },
    Marks { ending: ".flick", section: "#=", words: "##", comment: "#" },
];

/// A quotation beside the line that obeys it.
pub(super) struct Citation<'t> {
    /// The file.
    pub(super) text: &'t Text,
    /// Line of the citation, from 1.
    pub(super) line: usize,
    /// The RFC.
    pub(super) rfc: u32,
    /// The section.
    pub(super) section: String,
    /// The words, with one space between them.
    pub(super) quote: String,
    /// The next line that is code.
    pub(super) obeys: String,
}

/// Finds all citations; one that is not of the form is a finding. The sources of this tool are left out.
pub(super) fn find(texts: &[Text]) -> (Vec<Citation<'_>>, Vec<Finding>) {
    let (mut citations, mut findings) = (Vec::new(), Vec::new());
    for text in texts.iter().filter(|text| !text.path.starts_with("xtask/")) {
        let Some(marks) = MARKS.iter().find(|marks| text.path.ends_with(marks.ending)) else { continue };
        let lines: Vec<&str> = text.text.lines().map(str::trim).collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(head) = line.strip_prefix(marks.section) else { continue };
            match citation(text, &lines[index + 1..], head, marks) {
                Ok(citation) => citations.push(Citation { line: index + 1, ..citation }),
                Err(what) => findings.push(text.finding(index + 1, what)),
            }
        }
    }
    (citations, findings)
}

fn citation<'t>(text: &'t Text, rest: &[&str], head: &str, marks: &Marks) -> Result<Citation<'t>, String> {
    let form = || "write `RFC <number> section <section>`".to_owned();
    let (rfc, section) =
        head.trim().strip_prefix("RFC ").and_then(|head| head.split_once(" section ")).ok_or_else(form)?;
    let rfc = rfc.parse().map_err(|_| form())?;
    let words = rest.iter().map_while(|line| line.strip_prefix(marks.words));
    let quote = words.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ");
    if quote.is_empty() {
        return Err(format!(
            "it quotes nothing: the words follow in lines that begin with `{}`",
            marks.words
        ));
    }
    let is_code =
        |line: &&&str| !line.is_empty() && !line.starts_with(marks.comment) && !line.starts_with("#[");
    let obeys = rest.iter().find(is_code).ok_or("no line of code follows")?;
    let obeys = match obeys.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{} …", obeys[..end].trim_end()),
        None => (*obeys).to_owned(),
    };
    Ok(Citation { text, line: 0, rfc, section: section.to_owned(), quote, obeys })
}

//! Requests from templates: reads `tests/http/smuggling.txt`, whose head says how it is written.
//! Promises: the same requests in the same order every time, no two of the same bytes; a table that is not written as
//! its head says is a panic that names the line.

use std::collections::{BTreeMap, HashSet};

use super::table;

/// One request of a template, perhaps with more behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The template and the number of the request in it.
    pub name: String,
    /// The bytes that a client sends.
    pub bytes: Vec<u8>,
}

type Sets<'t> = BTreeMap<&'t str, Vec<&'t str>>;

struct Template<'t> {
    name: &'t str,
    /// The set whose members are inserted at every position.
    inserted: Option<&'t str>,
    text: String,
}

/// Reads a table and expands its templates.
pub fn attempts(table: &str) -> Vec<Attempt> {
    let (sets, templates) = read(table);
    let (mut attempts, mut known) = (Vec::new(), HashSet::new());
    for template in &templates {
        let before = attempts.len();
        let mut add = |bytes: Vec<u8>| {
            if known.insert(bytes.clone()) {
                let name = format!("{}#{}", template.name, attempts.len() - before);
                attempts.push(Attempt { name, bytes });
            }
        };
        for text in expanded(&template.text, &sets) {
            let (bytes, end) = table::bytes(&text);
            let Some(inserted) = template.inserted else {
                add(bytes);
                continue;
            };
            for at in 0..=end {
                for member in members(inserted, &sets) {
                    add([&bytes[..at], &table::bytes(member).0, &bytes[at..]].concat());
                }
            }
        }
    }
    attempts
}

fn read(table: &str) -> (Sets<'_>, Vec<Template<'_>>) {
    let (mut sets, mut templates, mut set) = (Sets::new(), Vec::<Template<'_>>::new(), None);
    for line in table.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(text) = line.strip_prefix("  ") {
            match (set, templates.last_mut()) {
                (Some(set), _) => sets.entry(set).or_default().push(text),
                (None, Some(template)) => template.text.push_str(text),
                (None, None) => panic!("neither a set nor a template has begun: {line}"),
            }
            continue;
        }
        set = line.strip_suffix(" =");
        if let Some(set) = set {
            assert!(sets.insert(set, Vec::new()).is_none(), "the set `{set}` is there twice");
            continue;
        }
        let (name, inserted) = match line.split_once(" | at every position: ") {
            Some((name, inserted)) => (name, Some(inserted)),
            None => (line, None),
        };
        assert!(!name.contains(' '), "a name has no blanks: {line}");
        assert!(templates.iter().all(|template| template.name != name), "`{name}` is there twice");
        templates.push(Template { name, inserted, text: String::new() });
    }
    (sets, templates)
}

fn members<'s, 't>(name: &str, sets: &'s Sets<'t>) -> &'s [&'t str] {
    sets.get(name).unwrap_or_else(|| panic!("there is no set `{name}`"))
}

/// Every combination of members of the sets that the text names.
fn expanded(text: &str, sets: &Sets<'_>) -> Vec<String> {
    let Some(start) = text.find(r"\<") else { return vec![text.to_owned()] };
    let len = text[start..].find('>').unwrap_or_else(|| panic!("`\\<` without `>`: {text}"));
    let reference = &text[start..=start + len];
    let name = reference[2..reference.len() - 1].split('.').next().unwrap_or_default();
    let chosen = members(name, sets).iter().map(|member| text.replace(reference, member));
    chosen.flat_map(|text| expanded(&text, sets)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::attempts;
    use crate::http::ambiguity::judge;

    const SMUGGLING: &str = include_str!("../../../../tests/http/smuggling.txt");

    /// Requests that the issue asks for at least.
    const ATTEMPTS_MIN: usize = 1500;
    /// Requests at least that a forwarder that copies its input would forward with two meanings, or although they
    /// are not HTTP.
    const DANGEROUS_MIN: usize = 1500;

    #[test]
    fn sets_are_combined_and_inserted() {
        let table = "s =\n  a\n  \\<t>c\nt =\n  \\r\n  \\n\none\n  x\\<s>\\<s>\\<s.2>\nall | at every position: t\n  12\\|3\n";
        let found: Vec<(String, Vec<u8>)> =
            attempts(table).into_iter().map(|attempt| (attempt.name, attempt.bytes)).collect();
        let expected: [(&str, &[u8]); 15] = [
            ("one#0", b"xaaa"),
            ("one#1", b"xaa\rc"),
            ("one#2", b"xaa\nc"),
            ("one#3", b"x\rc\rca"),
            ("one#4", b"x\rc\rc\rc"),
            ("one#5", b"x\rc\rc\nc"),
            ("one#6", b"x\nc\nca"),
            ("one#7", b"x\nc\nc\rc"),
            ("one#8", b"x\nc\nc\nc"),
            ("all#0", b"\r123"),
            ("all#1", b"\n123"),
            ("all#2", b"1\r23"),
            ("all#3", b"1\n23"),
            ("all#4", b"12\r3"),
            ("all#5", b"12\n3"),
        ];
        let found: Vec<(&str, &[u8])> =
            found.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_forwarder_that_copies_its_input_is_caught() {
        let all = attempts(SMUGGLING);
        let (mut by_template, mut dangerous) = (BTreeMap::<&str, (usize, usize)>::new(), 0);
        for attempt in &all {
            let template = attempt.name.split('#').next().unwrap_or_default();
            let counts = by_template.entry(template).or_default();
            counts.0 += 1;
            if judge(&attempt.bytes).is_err() {
                counts.1 += 1;
                dangerous += 1;
            }
        }
        for (name, (count, dangerous)) in &by_template {
            println!("{name}: {dangerous} of {count}");
        }
        println!("{dangerous} of {} requests", all.len());
        assert!(all.len() >= ATTEMPTS_MIN, "only {} requests", all.len());
        assert!(dangerous >= DANGEROUS_MIN, "only {dangerous} of {} requests are dangerous", all.len());
        let harmless: Vec<_> = by_template.iter().filter(|(_, counts)| counts.1 == 0).collect();
        assert!(harmless.is_empty(), "templates that could not fail: {harmless:?}");
    }
}

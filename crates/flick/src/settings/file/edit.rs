//! Changes of values in a settings file, as `flick tune --apply` makes them.
//! Promises: all other text stays as it is, comments included; the new file replaces the old one whole; one in which a
//! value would have no effect is refused. Not here: the meaning of the values.

use std::ops::Range;
use std::path::Path;

use toml::de::{DeTable, DeValue};

use super::location::entry;
use crate::replace_file::replace_file;
use crate::settings::deprecated::old_limit;

/// The text of the file at `path` with these values in `[limits]`.
///
/// Errors: it cannot be read, or has to be edited by hand.
pub fn limits_text(path: &Path, values: &[(&str, String)]) -> Result<String, String> {
    let shown = path.display();
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {shown}: {error}"))?;
    with_limits(&text, values).map_err(|why| format!("cannot write to {shown}: {why}"))
}

/// Sets keys of `[limits]` in the file at `path`.
///
/// Errors: as [`limits_text`], or it cannot be written; nothing was changed then.
pub fn set_limits(path: &Path, values: &[(&str, String)]) -> Result<(), String> {
    let text = limits_text(path, values)?;
    replace_file(path, &text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// The text with these keys of `[limits]`. Errors: why it has to be edited by hand.
fn with_limits(text: &str, values: &[(&str, String)]) -> Result<String, String> {
    let root = DeTable::parse(text).map_err(|error| error.message().to_owned())?;
    let root = root.get_ref();
    let services = match entry(root, "service").map(|(_, services)| services.get_ref()) {
        Some(DeValue::Array(all)) => all.iter().filter_map(|one| one.get_ref().as_table()).collect(),
        Some(one) => one.as_table().into_iter().collect(),
        None => Vec::new(),
    };
    if services.iter().any(|service| entry(service, "limits").is_some()) {
        return Err("a service has `limits` of its own, which have precedence".to_owned());
    }
    let limits = entry(root, "limits").map(|(_, limits)| limits.get_ref());
    let known = |key: &str| entry(limits?.as_table()?, key);
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    let mut lines = String::new();
    for (key, value) in values {
        match known(key) {
            Some((_, former)) => edits.push((former.span(), format!("\"{value}\""))),
            None => match old_limit(key).and_then(known) {
                // A file with both names of a key is refused.
                Some((name, former)) => {
                    edits.push((former.span(), format!("\"{value}\"")));
                    edits.push((name, (*key).to_owned()));
                }
                None => lines.push_str(&format!("{key} = \"{value}\"\n")),
            },
        }
    }
    if !lines.is_empty() {
        match (limits, header_end(text)) {
            (_, Some(end)) => edits.push((end..end, lines)),
            (None, None) => {
                let line_break = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
                edits.push((text.len()..text.len(), format!("{line_break}\n[limits]\n{lines}")));
            }
            (Some(_), None) => return Err("`limits` is not written as a table `[limits]`".to_owned()),
        }
    }
    // From the end, so that the other ranges stay right.
    edits.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
    let mut text = text.to_owned();
    edits.into_iter().for_each(|(range, new)| text.replace_range(range, &new));
    Ok(text)
}

/// End of the line `[limits]`.
fn header_end(text: &str) -> Option<usize> {
    let mut end = 0;
    text.split_inclusive('\n').find_map(|line| {
        end += line.len();
        let is_header = line.split('#').next().is_some_and(|code| code.trim() == "[limits]");
        (is_header && line.ends_with('\n')).then_some(end)
    })
}

#[cfg(test)]
mod tests {
    use super::{old_limit, set_limits, with_limits};

    fn check(text: &str, expected: Result<&str, &str>) {
        let values = [("busy_poll", "5us".to_owned()), ("time_slice", "20us".to_owned())];
        let result = with_limits(text, &values);
        assert_eq!(result.as_deref().map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn keys_are_replaced_or_added_and_the_rest_stays() {
        check("", Ok("\n[limits]\nbusy_poll = \"5us\"\ntime_slice = \"20us\"\n"));
        check(
            "workers = 2 # two\n[limits] # all\nmax_connections = 7\nbusy_poll= '1ms' # long\n[timeouts]\n",
            Ok("workers = 2 # two\n[limits] # all\ntime_slice = \"20us\"\nmax_connections = 7\n\
                busy_poll= \"5us\" # long\n[timeouts]\n"),
        );
        check(
            "limits = { time_slice = \"1ms\", busy_poll = \"0\" }\n",
            Ok("limits = { time_slice = \"20us\", busy_poll = \"5us\" }\n"),
        );
        check(
            "[service]\nprogram = \"a\"",
            Ok("[service]\nprogram = \"a\"\n\n[limits]\nbusy_poll = \"5us\"\ntime_slice = \"20us\"\n"),
        );
    }

    #[test]
    fn a_value_beside_its_deprecated_name_made_the_next_reload_fail() {
        check(
            "[limits]\nspin = '1ms' # long\nmax_connections = 7\n",
            Ok("[limits]\ntime_slice = \"20us\"\nbusy_poll = \"5us\" # long\nmax_connections = 7\n"),
        );
        check(
            "limits.spin = \"1ms\"\nlimits.time_slice = \"1ms\"\n",
            Ok("limits.busy_poll = \"5us\"\nlimits.time_slice = \"20us\"\n"),
        );
        let values = [("batch_delay_max", "5us".to_owned())];
        let old = old_limit("batch_delay_max").expect("it has an old name");
        let text = with_limits(&format!("[limits]\n\"{old}\" = \"2us\"\n"), &values);
        assert_eq!(text.as_deref(), Ok("[limits]\nbatch_delay_max = \"5us\"\n"));
    }

    #[test]
    fn values_without_effect_are_refused() {
        let own = "a service has `limits` of its own, which have precedence";
        check("[service]\nprogram = \"a\"\n[service.limits]\nbusy_poll = \"0\"\n", Err(own));
        check("[[service]]\nprogram = \"a\"\n[[service]]\nlimits = { cpu_weight = 2 }\n", Err(own));
        check("limits.max_connections = 7\n", Err("`limits` is not written as a table `[limits]`"));
    }

    #[test]
    fn a_file_that_is_not_read_is_not_written() {
        let path = std::env::temp_dir().join(format!("flick-edit-{}.toml", std::process::id()));
        std::fs::write(&path, "[limits\n").expect("the directory is writable");
        let error = set_limits(&path, &[("busy_poll", "5us".to_owned())]).expect_err("it is no TOML");
        assert!(error.contains("flick-edit-"), "{error}");
        assert_eq!(std::fs::read_to_string(&path).expect("it is there"), "[limits\n");
        std::fs::remove_file(&path).expect("the test created it");
    }
}

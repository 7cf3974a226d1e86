//! Variables of the environment in the values of `flick.toml`: `${NAME}` and `${NAME:-default}`, in strings.
//! Promises: a variable that is not set is an error at its line, never an empty text; `$${` stands for `${`.
//! Refuses: a variable in the default of another.
//! Not here: keys and numbers without quotes; a number may be in quotes.
//! Source: the parameter expansion of the POSIX shell, as in Docker Compose's files.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

/// A variable that cannot be substituted.
#[derive(Debug, PartialEq, Eq)]
pub struct Unset {
    /// The reason.
    pub message: String,
    /// Location of the value.
    pub span: Range<usize>,
}

/// Substitutes the variables in all strings of a table and those inside it.
///
/// Errors: a variable is not set and has no default, or `${` does not end.
pub fn substitute(table: &mut DeTable<'_>, lookup: &dyn Fn(&str) -> Option<String>) -> Result<(), Unset> {
    for (_, value) in table.iter_mut() {
        let span = value.span();
        substitute_value(value.get_mut(), span, lookup)?;
    }
    Ok(())
}

fn substitute_value(
    value: &mut DeValue<'_>,
    span: Range<usize>,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<(), Unset> {
    match value {
        DeValue::String(text) if text.contains("${") => {
            *text = expand(text, lookup).map_err(|message| Unset { message, span })?.into();
        }
        DeValue::Table(inner) => substitute(inner, lookup)?,
        DeValue::Array(items) => {
            for item in items.iter_mut() {
                let span = item.span();
                substitute_value(item.get_mut(), span, lookup)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// The text with the values of its variables. Errors: which variable is wrong.
pub fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("${") {
        let (before, reference) = (&rest[..at], &rest[at + 2..]);
        if let Some(before) = before.strip_suffix('$') {
            (out, rest) = (out + before + "${", reference);
            continue;
        }
        let (reference, behind) =
            reference.split_once('}').ok_or_else(|| format!("`${{` in `{text}` has no `}}`"))?;
        let (name, default) =
            reference.split_once(":-").map_or((reference, None), |(name, text)| (name, Some(text)));
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(format!(
                "`{name}` is not the name of a variable; write `${{NAME}}` or `${{NAME:-default}}`"
            ));
        }
        if default.is_some_and(|default| default.contains("${")) {
            return Err(format!("the default of `{name}` contains another variable; write a text"));
        }
        // As in the shell, `:-` replaces an empty value, too.
        let value = lookup(name).filter(|value| !value.is_empty() || default.is_none());
        let value = value.or_else(|| default.map(str::to_owned)).ok_or_else(|| {
            format!("the environment has no variable `{name}`; set it, or write `${{{name}:-default}}`")
        })?;
        (out, rest) = (out + before + &value, behind);
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::{expand, substitute};
    use toml::de::DeTable;

    fn lookup(name: &str) -> Option<String> {
        let known = [("PORT", "80"), ("EMPTY", ""), ("TRICK", "${PORT}")];
        known.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    }

    #[test]
    fn variables_are_replaced_by_their_values() {
        for (text, expected) in [
            ("127.0.0.1:${PORT}", "127.0.0.1:80"),
            ("${PORT}${PORT}", "8080"),
            ("${NONE:-90}", "90"),
            ("${EMPTY:-90}", "90"),
            ("${EMPTY}", ""),
            ("${NONE:-}", ""),
            ("${PORT:-90}", "80"),
            ("$${PORT} $PORT", "${PORT} $PORT"),
            // A value is not looked through again.
            ("${TRICK}", "${PORT}"),
        ] {
            assert_eq!(expand(text, &lookup).as_deref(), Ok(expected), "{text}");
        }
        for (text, piece) in [
            ("${NONE}", "the environment has no variable `NONE`"),
            ("${PORT", "has no `}`"),
            ("${}", "is not the name of a variable"),
            ("${A-B}", "is not the name of a variable"),
            ("${NONE:-${PORT}}", "the default of `NONE` contains another variable"),
            ("${PORT:-${NONE:-1}}", "the default of `PORT` contains another variable"),
        ] {
            let error = expand(text, &lookup).expect_err("it is wrong");
            assert!(error.contains(piece), "{text}: {error}");
        }
    }

    #[test]
    fn variables_in_lists_and_tables_are_replaced_and_errors_name_their_value() {
        let text = "a = \"${PORT}\"\nb = [1, { c = \"x${PORT}\" }]\n";
        let mut root = DeTable::parse(text).expect("TOML");
        substitute(root.get_mut(), &lookup).expect("all are set");
        let shown = format!("{:?}", root.get_ref());
        assert!(shown.contains("\"80\"") && shown.contains("\"x80\""), "{shown}");
        let mut root = DeTable::parse("a = 1\nb = [\"${NONE}\"]\n").expect("TOML");
        let unset = substitute(root.get_mut(), &lookup).expect_err("it is not set");
        assert_eq!(unset.span, 11..20);
    }
}

//! E02xx: names that are missing, doubled, or of another kind.

use super::{list, similar};
use crate::diagnostic::Diagnostic;
use crate::hir::Span;

fn did_you_mean<'a>(
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
    otherwise: impl Into<String>,
) -> String {
    match similar(name, known) {
        Some(close) => format!("did you mean `{close}`?"),
        None => otherwise.into(),
    }
}

pub(crate) fn duplicate(span: Span, what: &str, name: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0201", span, format!("the {what} `{name}` is declared twice"))
        .label("again here")
        .also(first, "first here")
        .help(if matches!(what, "property" | "attribute") {
            "remove one of them"
        } else {
            "rename or remove one of them"
        })
}

pub(crate) fn given_twice(span: Span, field: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0201", span, format!("the field `{field}` is given two values"))
        .label("again here")
        .also(first, "first here")
        .help("remove one of them")
}

pub(crate) fn channel_elsewhere(span: Span, name: &str, channel: &str) -> Diagnostic {
    Diagnostic::error(
        "E0202",
        span,
        format!("the channel `{name}` belongs to the process; a function does not see it"),
    )
    .label("not known here")
    .help(format!(
        "give the function a parameter for it, `{channel} {name}`, and pass it in the rule: `=> f({name})`"
    ))
}

pub(crate) fn shadowed(span: Span, name: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0201", span, format!("the name `{name}` already has a value here"))
        .label("named again")
        .also(first, "first here")
        .note("A name keeps its value as long as it is visible, so that a line means the same wherever it stands.")
        .help(format!("choose another name, for example `{name}2`"))
}

pub(crate) fn unknown_value<'a>(
    span: Span,
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let known_list = list(known.clone());
    Diagnostic::error("E0202", span, format!("there is no `{name}` here"))
        .label("not known here")
        .help(did_you_mean(name, known, format!("the names known here are {known_list}")))
}

/// `name := value` of a name that nothing has.
pub(crate) fn unknown_assigned<'a>(
    span: Span,
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let otherwise = format!(
        "write `let {name} = ...` for a value that stays; what a session keeps from message to message is declared in the process: `local {name} := 0`"
    );
    Diagnostic::error("E0202", span, format!("there is no `{name}` to change here"))
        .label("not known here")
        .help(did_you_mean(name, known, otherwise))
}

pub(crate) fn unknown_type<'a>(
    span: Span,
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let other = match name {
        "str" | "String" | "text" => Some("string"),
        "integer" | "long" | "Int" => Some("int"),
        "boolean" | "Bool" => Some("bool"),
        "byte" | "u8" | "char" => Some("uint8"),
        "u16" | "short" => Some("uint16"),
        "u32" | "uint" => Some("uint32"),
        "u64" => Some("uint64"),
        _ => None,
    };
    let mut names = known.clone().into_iter();
    let qualified = names.find(|known| known.strip_suffix(name).is_some_and(|front| front.ends_with('.')));
    let help = match other {
        Some(other) => format!("write `{other}`"),
        None if qualified.is_some() => {
            format!("write `{}`: the library has this name here", qualified.unwrap_or_default())
        }
        None if name == "vint" => {
            "write `int`; `vint` is how a grammar says that a number is sent".to_owned()
        }
        None => did_you_mean(
            name,
            known,
            "declare it with `type`, or find it with a `use` line at the top of the file",
        ),
    };
    Diagnostic::error("E0203", span, format!("there is no type `{name}`")).label("not a type").help(help)
}

/// `hidden_type` is the field's type when the grammar has the field but the program's record does not name it.
pub(crate) fn unknown_field<'a>(
    span: Span,
    unit: &str,
    field: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
    hidden: Option<(Span, &str)>,
) -> Diagnostic {
    let known_list = list(known.clone());
    let diagnostic =
        Diagnostic::error("E0204", span, format!("`{unit}` has no field `{field}`")).label("no such field");
    match hidden {
        Some((record, ty)) => diagnostic
            .also(record, "this record names the fields the program uses")
            .note("The grammar has the field. What the record does not name is not decoded and travels untouched.")
            .help(format!("add a line `{field} : {ty}` to the record")),
        None => diagnostic.help(did_you_mean(field, known, format!("its fields are {known_list}"))),
    }
}

pub(crate) fn unknown_function<'a>(
    span: Span,
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let known_list = list(known.clone());
    Diagnostic::error("E0205", span, format!("there is no function `{name}`"))
        .label("not a function")
        .help(did_you_mean(name, known, format!("the functions known here are {known_list}")))
}

pub(crate) fn unknown_member<'a>(
    span: Span,
    enumeration: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let known_list = list(known.clone());
    Diagnostic::error("E0206", span, format!("the enumeration `{enumeration}` has no member `{name}`"))
        .label("no such member")
        .help(did_you_mean(name, known, format!("its members are {known_list}")))
}

pub(crate) fn use_not_found(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0207", span, format!("there is no library or grammar `{name}`"))
        .label("not found")
        .note(
            "A name in a `use` line is looked up in the standard library, then as a file beside the program.",
        )
        .help(format!(
            "write `use memcached_binary`, or put your own grammar into `{name}.flick` beside the program"
        ))
}

pub(crate) fn too_many_files(span: Span, files_max: usize) -> Diagnostic {
    Diagnostic::error("E0207", span, format!("the program uses more than {files_max} files"))
        .label("one too many")
        .help("put grammars that belong together into one file")
}

pub(crate) fn record_without_grammar(span: Span, name: &str, grammars: &[&str]) -> Diagnostic {
    let known = if grammars.is_empty() {
        "No grammar is used by this program.".to_owned()
    } else {
        format!("The grammars that this program knows describe {}.", list(grammars.iter().copied()))
    };
    let help = match similar(name, grammars.iter().copied()) {
        Some(close) => {
            format!("did you mean `{close}`? A record is a view of the grammar with the same name")
        }
        None if grammars.is_empty() => {
            "add a `use` line ahead, for example `use memcached_binary`, which describes `cmd`".to_owned()
        }
        None => format!("name the record after one of them, or declare `type {name} = unit {{ ... }};`"),
    };
    Diagnostic::error("E0208", span, format!("no grammar describes `{name}`"))
        .label("a record is a view of a grammar")
        .note(known)
        .help(help)
}

pub(crate) fn wrong_kind(span: Span, name: &str, is: &str, wanted: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0209", span, format!("`{name}` is {is}, not {wanted}"))
        .label(format!("this is {is}"))
        .help(help)
}

pub(crate) fn unused_let(span: Span, name: &str) -> Diagnostic {
    Diagnostic::warning("E0210", span, format!("the name `{name}` is never used"))
        .label("never used")
        .help(format!("remove the line, or begin the name with an underscore: `_{name}`"))
}

pub(crate) fn unused_param(span: Span, name: &str) -> Diagnostic {
    Diagnostic::warning("E0210", span, format!("the parameter `{name}` is never used"))
        .label("never used")
        .help(format!("remove it here and in the calls, or begin its name with an underscore: `_{name}`"))
}

pub(crate) fn unused_function(span: Span, name: &str) -> Diagnostic {
    Diagnostic::warning("E0211", span, format!("the function `{name}` is never called"))
        .label("never called")
        .help(format!("call it from a rule, for example `| client => {name}(...)`, or remove it"))
}

pub(crate) fn unused_view_field(span: Span, unit: &str, field: &str) -> Diagnostic {
    Diagnostic::warning("E0212", span, format!("the program never reads the field `{field}` of `{unit}`"))
        .label("never read")
        .note("Fields that a record does not name cost nothing: they are passed on without being decoded.")
        .help("remove the line")
}

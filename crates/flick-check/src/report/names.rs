//! E02xx: names that are missing, defined twice, or of the wrong kind.

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
    Diagnostic::error("E0201", span, format!("the {what} `{name}` is defined multiple times"))
        .label("redefined here")
        .also(first, "first defined here")
        .help(if matches!(what, "property" | "attribute") {
            "remove one of them"
        } else {
            "rename or remove one of them"
        })
}

/// `library` is the file of the second one, as `use` lines name it.
pub(crate) fn duplicate_of_files(
    span: Span,
    what: &str,
    name: &str,
    first: Span,
    library: &str,
) -> Diagnostic {
    let short: String = library.split('_').filter_map(|word| word.chars().next()).collect();
    Diagnostic::error("E0201", span, format!("the {what} `{name}` is defined in two files"))
        .label("redefined here")
        .also(first, "first defined here")
        .help(format!("import this file under a name, `use {library} as {short}`, or rename one of them"))
}

pub(crate) fn field_specified_twice(span: Span, field: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0201", span, format!("field `{field}` specified more than once"))
        .label("used more than once")
        .also(first, "first used here")
        .help("remove one of them")
}

pub(crate) fn channel_in_function(span: Span, name: &str, channel: &str) -> Diagnostic {
    Diagnostic::error(
        "E0202",
        span,
        format!("cannot find channel `{name}` in this scope: channels of the process are not visible in functions"),
    )
    .label("not found in this scope")
    .help(format!("add a parameter to the function, `{channel} {name}`, and pass the channel in the rule: `=> f({name})`"))
}

pub(crate) fn shadowed(span: Span, name: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0201", span, format!("the name `{name}` is already defined in this scope"))
        .label("redefined here")
        .also(first, "first defined here")
        .note("A name cannot be shadowed or reassigned while it is in scope.")
        .help(format!("choose another name, for example `{name}2`"))
}

pub(crate) fn unknown_value<'a>(
    span: Span,
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let known_list = list(known.clone());
    Diagnostic::error("E0202", span, format!("cannot find value `{name}` in this scope"))
        .label("not found in this scope")
        .help(did_you_mean(name, known, format!("the names in this scope are {known_list}")))
}

/// `name := value` of a name that is not declared.
pub(crate) fn unknown_assigned<'a>(
    span: Span,
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let otherwise = format!(
        "write `let {name} = ...` for a value that does not change; declare state that a session keeps between messages in the process: `local {name} := 0`"
    );
    Diagnostic::error("E0202", span, format!("cannot assign to `{name}`: not found in this scope"))
        .label("not found in this scope")
        .help(did_you_mean(name, known, otherwise))
}

pub(crate) fn unknown_type<'a>(
    span: Span,
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let other = match name {
        "str" | "String" | "text" => Some("string"),
        "integer" | "long" | "Int" | "ssize_t" | "isize" | "ptrdiff_t" => Some("int"),
        "boolean" | "Bool" => Some("bool"),
        "byte" | "u8" | "char" | "uint8_t" => Some("uint8"),
        "u16" | "uint16_t" => Some("uint16"),
        "u32" | "uint" | "unsigned" | "uint32_t" => Some("uint32"),
        "u64" | "uint64_t" | "size_t" | "usize" | "uintptr_t" => Some("uint64"),
        "i8" | "int8_t" => Some("int8"),
        "i16" | "int16_t" | "short" => Some("int16"),
        "i32" | "int32_t" | "signed" => Some("int32"),
        "i64" | "int64_t" => Some("int64"),
        _ => None,
    };
    let mut names = known.clone().into_iter();
    let qualified = names.find(|known| known.strip_suffix(name).is_some_and(|front| front.ends_with('.')));
    let help = match other {
        Some(other) => format!("write `{other}`"),
        None if qualified.is_some() => {
            format!("write `{}`: the type is in an imported library", qualified.unwrap_or_default())
        }
        None if name == "vint" => "write `int`; `vint` is an encoding, which only grammars use".to_owned(),
        None => did_you_mean(
            name,
            known,
            "declare it with `type`, or import it with `use` at the top of the file",
        ),
    };
    foreign_type(span, name, &help)
}

/// A type of another language, for which `help` names flick's.
pub(crate) fn foreign_type(span: Span, name: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0203", span, format!("cannot find type `{name}` in this scope"))
        .label("not found in this scope")
        .help(help)
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
    let diagnostic = Diagnostic::error("E0204", span, format!("no field `{field}` on type `{unit}`"))
        .label("unknown field");
    match hidden {
        Some((record, ty)) => diagnostic
            .also(record, "this record lists the fields that the program uses")
            .note("The grammar has the field. Fields that the record does not list are not decoded; they are forwarded unchanged.")
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
    let help = match name {
        name if FOREIGN_CONCAT.contains(&name) => {
            "write `a + b`; an integer is converted with `str(n)`".to_owned()
        }
        name if is_foreign_log(name) => "write `log(text)`; an integer is converted with `str(n)`".to_owned(),
        _ => did_you_mean(name, known, format!("the functions in this scope are {known_list}")),
    };
    Diagnostic::error("E0205", span, format!("cannot find function `{name}` in this scope"))
        .label("not found in this scope")
        .help(help)
}

/// Functions that join strings in other languages.
const FOREIGN_CONCAT: &[&str] =
    &["join", "concat", "strcat", "append", "format", "sprintf", "snprintf", "fmt.Sprintf", "String.format"];

/// Whether `name` writes a line to the terminal or a log in another language: `print`, `console.log`, `fmt.Println`.
fn is_foreign_log(name: &str) -> bool {
    const FUNCTIONS: &[&str] =
        &["print", "println", "printf", "echo", "puts", "debug", "trace", "fprintf", "eprintln", "syslog"];
    const LIBRARIES: &[&str] =
        &["console", "log", "logger", "logging", "fmt", "slog", "tracing", "System.out"];
    FUNCTIONS.contains(&name)
        || name.rsplit_once('.').is_some_and(|(library, _)| LIBRARIES.contains(&library))
}

pub(crate) fn unknown_member<'a>(
    span: Span,
    enumeration: &str,
    name: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Diagnostic {
    let known_list = list(known.clone());
    Diagnostic::error("E0206", span, format!("no member named `{name}` found for enum `{enumeration}`"))
        .label("unknown member")
        .help(did_you_mean(name, known, format!("its members are {known_list}")))
}

/// Libraries that a program may import; the compiler has their texts.
pub const LIBRARIES: &[&str] = &[
    "frames",
    "hadoop",
    "http",
    "http_forwarding",
    "http_path",
    "lines",
    "memcached_binary",
    "memcached_text",
    "pcap",
    "pcap_big",
    "raw",
    "resp",
];

pub(crate) fn use_not_found(span: Span, name: &str) -> Diagnostic {
    let libraries = list(LIBRARIES.iter().copied());
    let otherwise = format!(
        "the libraries are {libraries}; put a grammar of your own into `{name}.flick` beside the program"
    );
    Diagnostic::error("E0207", span, format!("cannot find library or grammar `{name}`"))
        .label("not found")
        .note("`use` looks in the standard library, then for a file beside the program.")
        .help(did_you_mean(name, LIBRARIES.iter().copied(), otherwise))
}

pub(crate) fn too_many_files(span: Span, files_max: usize) -> Diagnostic {
    Diagnostic::error("E0207", span, format!("too many files: the limit of a program is {files_max}"))
        .label("exceeds the limit")
        .help("merge grammars that belong together into one file")
}

pub(crate) fn record_without_grammar(span: Span, name: &str, grammars: &[&str]) -> Diagnostic {
    let known = if grammars.is_empty() {
        "This program imports no grammar.".to_owned()
    } else {
        format!("The imported grammars define {}.", list(grammars.iter().copied()))
    };
    let help = match similar(name, grammars.iter().copied()) {
        Some(close) => {
            format!("did you mean `{close}`? A record is a view of the grammar with the same name")
        }
        None if grammars.is_empty() => format!(
            "write `type {name} = unit {{ ... }};` with the encoding of its fields, or import a grammar: `use memcached_binary`"
        ),
        None => format!("name the record after one of them, or declare `type {name} = unit {{ ... }};`"),
    };
    Diagnostic::error("E0208", span, format!("cannot find a grammar for record `{name}`"))
        .label("a record is a view of a grammar")
        .note(known)
        .help(help)
}

/// `is` is what the name stands for, "function"; `wanted` what was expected, "a value".
pub(crate) fn wrong_kind(span: Span, name: &str, is: &str, wanted: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0209", span, format!("expected {wanted}, found {is} `{name}`"))
        .label(format!("not {wanted}"))
        .help(help)
}

/// A declaration under a name of the language.
pub(crate) fn reserved(span: Span, name: &str, is: &str) -> Diagnostic {
    Diagnostic::error("E0209", span, format!("cannot define `{name}`: the name is reserved for {is}"))
        .label("reserved name")
        .help(format!("choose another name, for example `my_{name}`"))
}

/// Something that only programs have.
pub(crate) fn not_in_grammar(span: Span, name: &str, is: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0209", span, format!("`{name}` is not allowed in a grammar: it is {is}"))
        .label("not allowed in a grammar")
        .help(help)
}

pub(crate) fn unused_let(span: Span, name: &str) -> Diagnostic {
    Diagnostic::warning("E0210", span, format!("unused variable: `{name}`"))
        .label("never used")
        .help(format!("remove the line, or prefix the name with an underscore: `_{name}`"))
}

pub(crate) fn unused_param(span: Span, name: &str) -> Diagnostic {
    Diagnostic::warning("E0210", span, format!("unused parameter: `{name}`"))
        .label("never used")
        .help(format!("remove it here and in the calls, or prefix its name with an underscore: `_{name}`"))
}

pub(crate) fn unused_function(span: Span, name: &str) -> Diagnostic {
    Diagnostic::warning("E0211", span, format!("unused function: `{name}` is never called"))
        .label("never called")
        .help(format!("call it from a rule, for example `| client => {name}(...)`, or remove it"))
}

pub(crate) fn unused_view_field(span: Span, unit: &str, field: &str) -> Diagnostic {
    Diagnostic::warning("E0212", span, format!("field `{field}` of record `{unit}` is never read"))
        .label("never read")
        .note("Fields that a record does not list cost nothing: they are forwarded without being decoded.")
        .help("remove the line")
}

//! E063x and E064x: structured grammars: literals, classes, textual integers, choices, lists, keys, parameters.

use super::{counted, list, similar};
use crate::diagnostic::Diagnostic;
use crate::hir::Span;

pub(crate) fn literal_length(span: Span, found: usize, bytes_max: usize) -> Diagnostic {
    let (title, help) = if found == 0 {
        ("empty literal".to_owned(), "remove it")
    } else {
        (
            format!("literal too long: {found} bytes, the limit is {bytes_max}"),
            "split it into several literals, one after the other",
        )
    };
    Diagnostic::error("E0630", span, title).label("invalid literal").help(help)
}

pub(crate) fn delimiter(span: Span, bytes_max: usize) -> Diagnostic {
    Diagnostic::error(
        "E0631",
        span,
        format!("invalid delimiter: `&until` expects a literal of 1 to {bytes_max} bytes"),
    )
    .label("expected a literal")
    .help("write `&until = \"\\r\\n\"`")
}

pub(crate) fn min(span: Span, bound: u32) -> Diagnostic {
    Diagnostic::error(
        "E0631",
        span,
        format!("invalid minimum length: `&min` expects a number from 0 to the bound of the field, {bound}"),
    )
    .label("out of range")
    .help("write `&min = 1`, or declare a larger bound")
}

pub(crate) fn empty_class(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0632", span, format!("empty class: `{name}` contains no bytes"))
        .label("empty class")
        .help("list its bytes: `class { \"a\"..\"z\", \"-\" }`")
}

pub(crate) fn class_range(span: Span) -> Diagnostic {
    Diagnostic::error("E0632", span, "invalid range in a class: expected one byte on each side")
        .label("expected one byte on each side")
        .help("write `\"a\"..\"z\"`; list single bytes in one string: `\"-_.\"`")
}

pub(crate) fn class_range_backwards(span: Span) -> Diagnostic {
    Diagnostic::error("E0632", span, "empty range in a class: the first byte is above the last")
        .label("empty range")
        .help("swap the two ends")
}

pub(crate) fn recursive_class(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0632", span, format!("recursive class: `{name}` contains itself"))
        .label("closes the cycle")
        .help("list the bytes in one of the classes")
}

pub(crate) fn unknown_class(span: Span, name: &str, known: &[&str]) -> Diagnostic {
    let help = match similar(name, known.iter().copied()) {
        Some(close) => format!("did you mean `{close}`?"),
        None => format!("declare it: `type {name} = class {{ \"a\"..\"z\" }};`"),
    };
    Diagnostic::error("E0632", span, format!("cannot find class `{name}`")).label("not found").help(help)
}

pub(crate) fn not_a_class(span: Span) -> Diagnostic {
    Diagnostic::error("E0632", span, "invalid value of `&of`: expected the name of a class")
        .label("expected a class")
        .help("declare one, `type digit = class { \"0\"..\"9\" };`, and write `&of = digit`")
}

pub(crate) fn class_as_type(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0632", span, format!("expected a type, found class `{name}`"))
        .label("not a type")
        .note("A class is a set of bytes; it has no length.")
        .help(format!("write `string<64> &of = {name}`"))
}

pub(crate) fn digits(span: Span, base: u8, digits_max: u8) -> Diagnostic {
    let name = if base == 10 { "decimal" } else { "hex" };
    Diagnostic::error(
        "E0633",
        span,
        format!("invalid size: `{name}` expects a maximum number of digits, 1 to {digits_max}"),
    )
    .label("expected a number of digits")
    .help(format!("write `{name}<8>`"))
}

pub(crate) fn signed_digits(span: Span, base: u8) -> Diagnostic {
    let why = if base == 10 { "at most 18 digits" } else { "`decimal`" };
    Diagnostic::error("E0633", span, format!("invalid `&signed`: a signed integer needs {why}"))
        .label("invalid `&signed`")
        .help("write `decimal<18> &signed`")
}

pub(crate) fn varint_bytes(span: Span, bytes_max: u8) -> Diagnostic {
    Diagnostic::error(
        "E0633",
        span,
        format!("invalid size: `varint` expects a maximum number of bytes, 1 to {bytes_max}"),
    )
    .label("expected a number of bytes")
    .help("write `varint<4>`")
}

pub(crate) fn default_value(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0633",
        span,
        "invalid `&default`: expected a literal number in the range of the field",
    )
    .label("expected a literal in range")
    .help("write `&default = 1`")
}

pub(crate) fn bits_width(span: Span) -> Diagnostic {
    Diagnostic::error("E0634", span, "invalid width of a bit group: expected 8, 16, 32 or 64")
        .label("expected 8, 16, 32 or 64")
        .help("write `bits<16> { version : 4; length : 12; };`")
}

pub(crate) fn bit_field_width(span: Span) -> Diagnostic {
    Diagnostic::error("E0634", span, "invalid width of a bit field: expected a literal number from 1 to 64")
        .label("expected a literal number")
        .help("write `version : 4;`")
}

pub(crate) fn bits_sum(span: Span, found: u64, wanted: u64) -> Diagnostic {
    let help = if found < wanted {
        format!(
            "add a field for the remaining {} bits, which needs no name: `: {};`",
            wanted - found,
            wanted - found
        )
    } else {
        "make one of the fields narrower, or the group wider".to_owned()
    };
    Diagnostic::error(
        "E0634",
        span,
        format!("mismatched bit widths: the group has {wanted} bits, its fields have {found}"),
    )
    .label(format!("{found} bits in fields"))
    .help(help)
}

pub(crate) fn unreachable_else(span: Span) -> Diagnostic {
    Diagnostic::error("E0635", span, "unreachable `else`: every value has a case")
        .label("unreachable")
        .help("remove it")
}

pub(crate) fn list_of(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0636", span, "invalid element type: the elements of a list in a message are units")
        .label("expected a unit")
        .help(format!("declare one, `type item = unit {{ value : {name}; }};`, and write `[item]<100>`"))
}

pub(crate) fn list_bound(span: Span, elements_max: u32) -> Diagnostic {
    Diagnostic::error(
        "E0636",
        span,
        format!("invalid bound: expected a literal number from 1 to {elements_max}"),
    )
    .label("expected a literal number")
    .help("write `[item]<100>`")
}

pub(crate) fn list_without_end(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0636", span, format!("missing end of list `{name}`"))
        .label("missing end")
        .help(format!("add `&count = self.n` with a field `n` before the list, `&until = \"\\r\\n\"`, `&length = self.n` in bytes, or `&last = self.{name}.field == 0` with a field of the last element"))
}

pub(crate) fn conflicting_ends(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0636", span, format!("conflicting ends of list `{name}`: a list ends in one way"))
        .label("second end")
        .help("remove one of them; write an additional condition as a `check`")
}

pub(crate) fn list_without_bound(span: Span, name: &str, is_keyed: bool) -> Diagnostic {
    let diagnostic =
        Diagnostic::error("E0636", span, format!("missing bound of list `{name}`")).label("missing bound");
    let diagnostic = if is_keyed {
        diagnostic.note("A list with keys is kept in memory until its end.")
    } else {
        diagnostic.note("Only a list at the end of a message can be streamed without a bound.")
    };
    diagnostic.help(format!("write the maximum number of elements after its type: `{name} : [item]<100>`"))
}

pub(crate) fn keyed_attribute(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0637",
        span,
        format!("attribute `&{name}` needs a list with keys, but this list has no `&key`"),
    )
    .label("missing `&key`")
    .help("add `&key = name &value = value`, with two fields of the element")
}

pub(crate) fn keyed_without(span: Span, attribute: &str) -> Diagnostic {
    let other = if attribute == "value" { "key" } else { "value" };
    Diagnostic::error("E0637", span, format!("missing `&{attribute}`: a list with `&{other}` needs both"))
        .label(format!("missing `&{attribute}`"))
        .help(format!(
            "add `&{attribute} = {}`, with a field of the element",
            if attribute == "key" { "name" } else { "value" }
        ))
}

pub(crate) fn keyed_member(span: Span, attribute: &str, found: &str, texts: &[String]) -> Diagnostic {
    let help = match similar(found, texts.iter().map(String::as_str)) {
        Some(close) => format!("did you mean `{close}`?"),
        None if texts.is_empty() => "add a string field to the element".to_owned(),
        None => format!("the strings of an element are {}", list(texts.iter().map(String::as_str))),
    };
    Diagnostic::error(
        "E0637",
        span,
        format!("invalid value of `&{attribute}`: expected a string field of the element"),
    )
    .label("expected a string field")
    .help(help)
}

pub(crate) fn key_list(span: Span, attribute: &str) -> Diagnostic {
    Diagnostic::error("E0637", span, format!("invalid value of `&{attribute}`: expected literal keys"))
        .label("expected a literal")
        .help(format!("write `&{attribute} = [\"host\", \"content-length\"]`"))
}

pub(crate) fn key_literal(span: Span) -> Diagnostic {
    Diagnostic::error("E0638", span, "invalid key: expected a literal")
        .label("expected a literal")
        .note("The parser looks for keys that are known before a message arrives.")
        .help("write the key as a literal, `headers[\"host\"]`, one line for each key")
}

pub(crate) fn impossible_key(span: Span, key: &str, why: &str, location: Span) -> Diagnostic {
    Diagnostic::error("E0638", span, format!("impossible key `{key}`: {why}"))
        .label("never found")
        .also(location, "the key of an element")
        .help("correct the key")
}

pub(crate) fn too_many_keys(span: Span, found: usize, keys_max: usize) -> Diagnostic {
    Diagnostic::error(
        "E0638",
        span,
        format!("too many keys: the grammar and the program look up {found} keys of this list, the limit is {keys_max}"),
    )
    .label("too many keys")
    .help("look up fewer keys")
}

pub(crate) fn not_keyed(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0638", span, format!("cannot look up a key in `{name}`: the list has no keys"))
        .label("looked up by key")
        .help("add `&key = ... &value = ...` in the grammar, or index an element: `[0]`")
}

pub(crate) fn list_as_value(span: Span, name: &str, is_keyed: bool, key: Option<&[u8]>) -> Diagnostic {
    let help = if is_keyed {
        let key = key.map_or("host".to_owned(), |key| key.escape_ascii().to_string());
        format!("look up a key: `self.{name}[\"{key}\"]`")
    } else {
        "write `len(self.list)` for the number of elements of a bounded list; check elements one by one, with `check` in the unit of the element, or with `&last`"
            .to_owned()
    };
    Diagnostic::error("E0638", span, format!("expected a value, found list `{name}`"))
        .label("a whole list")
        .help(help)
}

pub(crate) fn ambiguous_end(span: Span, name: &str, byte: u8, next: Span) -> Diagnostic {
    let byte = shown(byte);
    Diagnostic::error(
        "E0639",
        span,
        format!("ambiguous grammar: the end of {name} is not known, because the next item may begin with {byte} too"),
    )
    .label(format!("consumes {byte}"))
    .also(next, format!("may begin with {byte}"))
    .note("A field without a delimiter consumes all bytes that match, so the next item would never see them.")
    .help("add a literal between them that does not match, `\" \";`, or a delimiter to the field: `&until = \" \"`")
}

pub(crate) fn optional_literal(span: Span, byte: u8, next: Span) -> Diagnostic {
    let byte = shown(byte);
    Diagnostic::error(
        "E0639",
        span,
        format!("ambiguous grammar: this literal is optional, and the next item may begin with {byte} too"),
    )
    .label("ambiguous")
    .also(next, format!("may begin with {byte}"))
    .help("remove `&optional`, or write both alternatives as cases of a `switch`")
}

pub(crate) fn ambiguous_message_end(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0639",
        span,
        format!("ambiguous grammar: the end of {name} is not known before the next message arrives"),
    )
    .label("the last item of the message")
    .help("end the message with a literal: `\"\\n\";`")
}

pub(crate) fn ambiguous_optional_end(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0639",
        span,
        "ambiguous grammar: the message ends with an optional literal, so its end is not known before the next message arrives",
    )
    .label("the last item of the message")
    .help("remove `&optional`, or end the message with a literal that is always present")
}

/// A byte as it is written in a literal.
fn shown(byte: u8) -> String {
    format!("`{}`", std::ascii::escape_default(byte))
}

pub(crate) fn empty_element(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0640", span, format!("empty list element: an element of `{name}` may have no bytes"))
        .label("may be empty")
        .note("A list of empty elements never ends.")
        .help("add something that always has bytes: a literal, an integer, or a string with `&min = 1`")
}

pub(crate) fn after_to_close(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0641", span, format!("field `{name}` with `&to_close` must be the last item"))
        .label("not the last item")
        .help("move it to the end of the unit, or declare a length")
}

/// `params`: name and type of each.
pub(crate) fn argument_count(
    span: Span,
    name: &str,
    params: &[(String, String)],
    found: usize,
    location: Span,
) -> Diagnostic {
    let names: Vec<&str> = params.iter().map(|(name, _)| name.as_str()).collect();
    let help = if names.is_empty() {
        format!("write `{name}`")
    } else {
        let what = if names.len() == 1 { "a value" } else { "values" };
        format!("write `{name}({})`, with {what} for {}", names.join(", "), list(names.iter().copied()))
    };
    let declared: Vec<String> = params.iter().map(|(name, ty)| format!("`{name}`, {ty}")).collect();
    let title = format!(
        "wrong number of arguments for unit `{name}`: expected {}, found {found}",
        counted(names.len(), "argument")
    );
    let diagnostic = Diagnostic::error("E0642", span, title).label(counted(found, "argument")).help(help);
    if declared.is_empty() {
        diagnostic
    } else {
        diagnostic.also(location, format!("takes {}", declared.join("; ")))
    }
}

pub(crate) fn no_params(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0642", span, format!("type `{name}` takes no arguments"))
        .label("unexpected arguments")
        .help(format!("write `{name}`, and the length as `&length = ...`"))
}

pub(crate) fn param_type(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0642",
        span,
        format!("invalid parameter type: expected an integer, an enum or a boolean, found {found}"),
    )
    .label("invalid parameter type")
    .help("write `limit : uint32`")
}

pub(crate) fn field_named_as_param(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0642", span, format!("the name `{name}` is already used by a parameter of this unit"))
        .label("the same name")
        .help("rename the field: both are written `self.name`")
}

pub(crate) fn message_with_params(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0642",
        span,
        format!("cannot use unit `{name}` as a message: its parameters have no values"),
    )
    .label("takes arguments")
    .help(format!(
        "use a unit that contains it and passes the arguments: `type whole = unit {{ all : {name}(100); }};`"
    ))
}

pub(crate) fn field_of_an_element(span: Span, path: &str, list: &str, location: Span) -> Diagnostic {
    of_which_element(span, path, list, location)
        .help("use it in the unit of the element, or in the `&last` of the list")
}

pub(crate) fn element_in_a_program(span: Span, path: &str, list: &str, location: Span) -> Diagnostic {
    of_which_element(span, path, list, location)
        .help(format!("select an element, `{list}[0]`, or iterate, `for item in {list}`; an element is its only string, or its bytes"))
}

fn of_which_element(span: Span, path: &str, list: &str, location: Span) -> Diagnostic {
    Diagnostic::error(
        "E0643",
        span,
        format!("ambiguous field: `{path}` is a field of every element of list `{list}`"),
    )
    .label("which element?")
    .also(location, "a field of each element")
}

pub(crate) fn list_used_in_its_element(span: Span, path: &str) -> Diagnostic {
    Diagnostic::error("E0643", span, format!("`{path}` is used before its last element is parsed"))
        .label("used in one of its elements")
        .help("use the fields of the element instead")
}

/// A channel of clients that receives replies, or one of backends that receives requests.
pub(crate) fn reversed(
    span: Span,
    name: &str,
    (receives, sends): (&str, &str),
    is_array: bool,
) -> Diagnostic {
    let (open, close) = if is_array { ("[", "]") } else { ("", "") };
    let (peer, wanted) = if is_array { ("backends", "replies") } else { ("clients", "requests") };
    let title = format!("request and reply are exchanged: `{name}` receives `{receives}`");
    Diagnostic::error("E0650", span, title)
        .label(format!("{peer} send {wanted}"))
        .note("The message before the slash is received, the one behind it is sent.")
        .help(format!(
            "write `{open}{sends}/{receives}{close} {name}`, and so in the functions that it is passed to"
        ))
}

pub(crate) fn any_argument(span: Span, found: usize) -> Diagnostic {
    let title = match found {
        0 => "invalid `&any`: the expression uses no key of a list".to_owned(),
        _ => format!("invalid `&any`: the expression uses {found} keys, expected one"),
    };
    Diagnostic::error("E0644", span, title)
        .label("expected one key of a list, such as `self.headers[\"connection\"]`")
        .help("write `&any = has_token(self.headers[\"connection\"], \"close\")`")
}

pub(crate) fn sum_argument(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0644",
        span,
        "invalid `&sum`: expected a field of the elements of one list that comes before it",
    )
    .label("expected a field of an element")
    .help("write `&sum = len(self.chunks.ext)`")
}

pub(crate) fn given_type(span: Span, attribute: &str) -> Diagnostic {
    let name = if attribute == "kept" { "asked" } else { "resumed" };
    let title = format!("invalid type of a `&{attribute}` variable: expected `uint64`");
    Diagnostic::error("E0644", span, title)
        .label("expected `uint64`")
        .help(format!("write `var {name} : uint64 &{attribute};`"))
}

pub(crate) fn full_argument(span: Span) -> Diagnostic {
    let title = "invalid `&full`: expected a list that comes before it, with a bound and `&until`";
    Diagnostic::error("E0644", span, title)
        .label("expected a list of the unit itself")
        .help("write `&full = self.words` behind `words : [word]<200> &until = \"\\n\"`")
}

pub(crate) fn full_is_sent(span: Span, path: &str, unit: &str, channel: &str, location: Span) -> Diagnostic {
    let title = format!("cannot read `{path}`: the process sends messages `{unit}` to `{channel}`");
    Diagnostic::error("E0653", span, title)
        .label("where it is read, a message may end before its terminator")
        .also(location, "declared here")
        .note("Such a message is no message for its receiver, who would take the rest of it for another one.")
        .help("answer the messages here, or do not read it: a list that is full is then too long")
}

pub(crate) fn text_variable(span: Span, path: &str, location: Span) -> Diagnostic {
    Diagnostic::error(
        "E0644",
        span,
        format!("cannot use string variable `{path}` in the grammar: only programs compute it"),
    )
    .label("used by the grammar")
    .also(location, "a string variable")
    .help("use the field that it is computed from")
}

pub(crate) fn to_close_as_value(span: Span, path: &str) -> Diagnostic {
    Diagnostic::error(
        "E0645",
        span,
        format!("cannot use `{path}` in the grammar: it has no end before the peer closes the connection"),
    )
    .label("not known")
    .help("use the fields before it")
}

pub(crate) fn streamed_in_grammar(span: Span, what: &str, path: &str, location: Span) -> Diagnostic {
    Diagnostic::error("E0645", span, format!("{what} uses `{path}`, which is streamed"))
        .label("not in memory as a whole")
        .also(location, "has no bound")
        .help("declare a bound, `bytes<4KiB>`, or use the fields before it")
}

pub(crate) fn unknown_fault(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0646",
        span,
        "invalid `&fault`: expected `malformed`, `too_long`, `name_too_long` or `unsupported`",
    )
    .label("unknown fault")
    .note("`%on too_long = ...` is the response to a request that was rejected with this fault.")
    .help("write `&fault = unsupported`")
}

pub(crate) fn cannot_hold(span: Span, name: &str, byte: u8, why: &str, location: Span) -> Diagnostic {
    let byte = shown(byte);
    Diagnostic::error("E0647", span, format!("invalid byte {byte} in the value of `{name}`"))
        .label(format!("contains {byte}"))
        .also(location, why.to_owned())
        .note("The receiver would parse the message differently.")
        .help("remove the byte, or encode the value: `percent_encode(...)`")
}

pub(crate) fn value_consumed_by_field(span: Span, name: &str, run: &str, location: Span) -> Diagnostic {
    let title = format!(
        "ambiguous value: `{run}`, which comes before `{name}`, would consume the front of this value"
    );
    Diagnostic::error("E0647", span, title)
        .label(format!("may begin with bytes that `{run}` consumes"))
        .also(location, format!("begins where `{run}` ends"))
        .note("The receiver would parse both fields differently.")
        .help("add a literal between them in the grammar, or use a constant that begins with another byte")
}

pub(crate) fn too_short(span: Span, name: &str, found: usize, wanted: u32, location: Span) -> Diagnostic {
    Diagnostic::error(
        "E0647",
        span,
        format!("value too short: `{name}` needs at least {}, found {found}", counted(wanted, "byte")),
    )
    .label("too short")
    .also(location, "declared here")
    .help("use a longer string")
}

pub(crate) fn unbounded_list_read(span: Span, name: &str, location: Span) -> Diagnostic {
    Diagnostic::error("E0648", span, format!("cannot read list `{name}`: it has no bound, so it is streamed"))
        .label("read here")
        .also(location, "declared without a bound")
        .help("declare the maximum number of elements: `[item]<100>`")
}

pub(crate) fn too_many_elements(
    span: Span,
    name: &str,
    found: u64,
    items_max: u64,
    location: Span,
) -> Diagnostic {
    Diagnostic::error(
        "E0648",
        span,
        format!("too many list elements: `{name}` and other lists have {found}, the limit of one message is {items_max}"),
    )
    .label("received here")
    .also(location, "declared here")
    .help("declare a smaller bound, or do not read the list")
}

pub(crate) fn to_close_read(span: Span, name: &str, location: Span) -> Diagnostic {
    Diagnostic::error(
        "E0648",
        span,
        format!("cannot read `{name}`: it has no end before the peer closes the connection"),
    )
    .label("used here")
    .also(location, "everything until the peer closes")
    .help("forward the message unchanged, or use the fields before it")
}

pub(crate) fn list_is_read_only(span: Span, name: &str, location: Span) -> Diagnostic {
    Diagnostic::error(
        "E0648",
        span,
        format!("cannot assign to list `{name}`: its elements have several fields, or no string"),
    )
    .label("assigned here")
    .also(location, "an element has several fields, or none that is a string")
    .help("build the message from bytes, `unit_name{wire = ...}`, or declare an element with one string")
}

pub(crate) fn fields_of_two_arms(span: Span, one: &str, other: &str, first: Span) -> Diagnostic {
    Diagnostic::error(
        "E0649",
        span,
        format!("conflicting fields: `{one}` and `{other}` are in different cases of a `switch`"),
    )
    .label("in another case of the `switch`")
    .also(first, "in one case")
    .help("set the fields of one case only")
}

pub(crate) fn wire_of_a_plain_unit(span: Span, unit: &str, fields: &[&str]) -> Diagnostic {
    let fields: Vec<String> = fields.iter().map(|name| format!("{name} = ...")).collect();
    let title =
        format!("cannot build a `{unit}` from bytes: `wire` needs a unit with strings, choices or lists");
    Diagnostic::error("E0649", span, title)
        .label("a plain sequence of integers and bytes")
        .help(format!("name its fields: `{unit}{{{}}}`", fields.join(", ")))
}

pub(crate) fn wire_and_fields(span: Span) -> Diagnostic {
    Diagnostic::error("E0649", span, "conflicting fields: `wire` sets the whole message")
        .label("beside `wire`")
        .help("write `unit_name{wire = bytes}`, or change the message afterwards: `... with field = value`")
}

pub(crate) fn other_replies(
    span: Span,
    request: &str,
    replies: &str,
    found: &str,
    location: Span,
) -> Diagnostic {
    Diagnostic::error(
        "E0650",
        span,
        format!("mismatched channel type: the reply to `{request}` is `{replies}`, found `{found}`"),
    )
    .label("request and reply do not match")
    .also(location, format!("`%replies = {replies}`"))
    .help(format!("write `{request}/{replies}` for a client, `{replies}/{request}` for a backend"))
}

pub(crate) fn warn_buffered(
    span: Span,
    unit: &str,
    name: &str,
    streamed: &str,
    location: Span,
) -> Diagnostic {
    let title = format!(
        "long messages will be rejected: `{name}` comes after `{streamed}`, so a `{unit}` must be buffered"
    );
    Diagnostic::warning("E0651", span, title)
        .label("known at the end of the message")
        .also(location, "would be streamed")
        .note("A message is buffered until all variables that are used are known, and at most 16 KiB are buffered.")
        .help(format!("move the variable in front of `{streamed}`"))
}

/// A field that only changed copies of messages set; `copied` are the other fields that a program may set.
pub(crate) fn bounded_by_a_change(
    span: Span,
    (unit, name): (&str, &str),
    copied: &[&str],
    bytes_max: u32,
    location: Span,
) -> Diagnostic {
    let title = format!(
        "long messages will be rejected: `{name}` is changed here, so every `{unit}` with more than {} of it is refused",
        counted(bytes_max, "byte")
    );
    let given: String = copied.iter().map(|field| format!("{field} = m.{field}, ")).collect();
    Diagnostic::warning("E0651", span, title)
        .label("bounds the field in all messages")
        .also(location, "would be streamed")
        .note("A message that is built does not bound the field in those that are forwarded; its fields that are not given are zero or empty.")
        .help(format!(
            "build a new message instead of changing `m`: `{unit}{{{given}{name} = ...}}`; or declare the bound in a record: `{name}: bytes<8KiB>`"
        ))
}

pub(crate) fn bounded_by_default(
    span: Span,
    unit: &str,
    name: &str,
    bytes_max: u32,
    location: Span,
) -> Diagnostic {
    let title = format!(
        "long messages will be rejected: `{name}` is used here, so a `{unit}` with more than {} of it is refused",
        counted(bytes_max, "byte")
    );
    Diagnostic::warning("E0651", span, title)
        .label("needs the whole field")
        .also(location, "would be streamed")
        .note(format!("A field that a program uses has a bound of {bytes_max} bytes if none is declared."))
        .help(format!("declare the field in a record: `{name}: option<bytes<8KiB>>` is `none` if it is longer, `{name}: bytes<8KiB>` rejects the message"))
}

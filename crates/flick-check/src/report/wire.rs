//! E063x and E064x: structured grammars: literals, classes, numbers in digits, choices, lists, keys, parameters.

use super::{list, similar};
use crate::diagnostic::Diagnostic;
use crate::hir::Span;

fn percent(names: &[&str]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("&{name}")).collect();
    list(names.iter().map(String::as_str))
}

pub(crate) fn attribute_of(span: Span, name: &str, what: &str, known: &[&str]) -> Diagnostic {
    let help = match similar(name, known.iter().copied()) {
        Some(close) => format!("did you mean `&{close}`?"),
        None => format!("here stand {}", percent(known)),
    };
    Diagnostic::error("E0602", span, format!("`&{name}` does not stand on {what}"))
        .label("out of place")
        .help(help)
}

pub(crate) fn property_inside(span: Span) -> Diagnostic {
    Diagnostic::error("E0601", span, "a property of a grammar does not depend on a message")
        .label("inside a `switch`")
        .help("write it at the top of the unit")
}

pub(crate) fn literal_length(span: Span, found: usize, bytes_max: usize) -> Diagnostic {
    let (title, help) = if found == 0 {
        ("an empty literal says nothing".to_owned(), "remove it".to_owned())
    } else {
        let help = "write it as several literals, one behind the other";
        (format!("a literal has at most {bytes_max} bytes, this one has {found}"), help.to_owned())
    };
    Diagnostic::error("E0630", span, title).label("not possible").help(help)
}

pub(crate) fn delimiter(span: Span, bytes_max: usize) -> Diagnostic {
    Diagnostic::error("E0631", span, format!("`&until` wants a literal of 1 to {bytes_max} bytes"))
        .label("not such a literal")
        .help("write `&until = \"\\r\\n\"`")
}

pub(crate) fn min(span: Span, bound: u32) -> Diagnostic {
    Diagnostic::error(
        "E0631",
        span,
        format!("`&min` wants a number from 0 to the bound of the field, {bound}"),
    )
    .label("not possible")
    .help("write `&min = 1`, or give the field a larger bound")
}

pub(crate) fn empty_class(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0632", span, format!("no byte is in the class `{name}`"))
        .label("empty")
        .help("name the bytes that are in it: `class { \"a\"..\"z\", \"-\" }`")
}

pub(crate) fn class_range(span: Span) -> Diagnostic {
    Diagnostic::error("E0632", span, "a range goes from one byte to another")
        .label("not one byte on each side")
        .help("write `\"a\"..\"z\"`; single bytes are written as one string: `\"-_.\"`")
}

pub(crate) fn class_range_backwards(span: Span) -> Diagnostic {
    Diagnostic::error("E0632", span, "this range goes backwards, so no byte is in it")
        .label("the first byte is behind the last")
        .help("exchange the two ends")
}

pub(crate) fn class_of_itself(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0632", span, format!("the class `{name}` is made of itself"))
        .label("closes the circle")
        .help("write the bytes out in one of them")
}

pub(crate) fn unknown_class(span: Span, name: &str, known: &[&str]) -> Diagnostic {
    let help = match similar(name, known.iter().copied()) {
        Some(close) => format!("did you mean `{close}`?"),
        None => format!("declare it: `type {name} = class {{ \"a\"..\"z\" }};`"),
    };
    Diagnostic::error("E0632", span, format!("there is no class `{name}`")).label("unknown").help(help)
}

pub(crate) fn not_a_class(span: Span) -> Diagnostic {
    Diagnostic::error("E0632", span, "`&of` wants the name of a class")
        .label("not a class")
        .help("declare one, `type digit = class { \"0\"..\"9\" };`, and write `&of = digit`")
}

pub(crate) fn class_as_type(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0632", span, format!("the class `{name}` says which bytes there are, not how many"))
        .label("not a type")
        .help(format!("write `string<64> &of = {name}`"))
}

pub(crate) fn digits(span: Span, base: u8, digits_max: u8) -> Diagnostic {
    let name = if base == 10 { "decimal" } else { "hex" };
    Diagnostic::error(
        "E0633",
        span,
        format!("`{name}` wants the most digits there may be, 1 to {digits_max}"),
    )
    .label("how many digits?")
    .help(format!("write `{name}<8>`"))
}

pub(crate) fn signed_digits(span: Span, base: u8) -> Diagnostic {
    let why = if base == 10 { "with at most 18 digits" } else { "in decimal" };
    Diagnostic::error("E0633", span, format!("a number with a sign is written {why}"))
        .label("not possible")
        .help("write `decimal<18> &signed`")
}

pub(crate) fn varint_bytes(span: Span, bytes_max: u8) -> Diagnostic {
    Diagnostic::error("E0633", span, format!("`varint` wants the most bytes there may be, 1 to {bytes_max}"))
        .label("how many bytes?")
        .help("write `varint<4>`")
}

pub(crate) fn bits_width(span: Span) -> Diagnostic {
    Diagnostic::error("E0634", span, "a group of bits has 8, 16, 32 or 64 of them")
        .label("another number")
        .help("write `bits<16> { version : 4; length : 12; };`")
}

pub(crate) fn bit_field_width(span: Span) -> Diagnostic {
    Diagnostic::error("E0634", span, "a bit field has 1 to 64 bits, written as a literal number")
        .label("not such a number")
        .help("write `version : 4;`")
}

pub(crate) fn bits_sum(span: Span, found: u64, wanted: u64) -> Diagnostic {
    let help = if found < wanted {
        format!("give the remaining {} bits a name, or none: `: {};`", wanted - found, wanted - found)
    } else {
        "make one of the fields narrower, or the group wider".to_owned()
    };
    Diagnostic::error("E0634", span, format!("the group has {wanted} bits, but its fields have {found}"))
        .label(format!("{found} bits in fields"))
        .help(help)
}

pub(crate) fn unreachable_else(span: Span) -> Diagnostic {
    Diagnostic::error("E0635", span, "this `else` is never taken: every value has a case before it")
        .label("never there")
        .help("remove it")
}

pub(crate) fn list_of(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0636", span, "the elements of a list in a message are units")
        .label("not a unit")
        .help(format!("declare one: `type item = unit {{ value : {name}; }};`, and write `[item]<100>`"))
}

pub(crate) fn list_bound(span: Span, elements_max: u32) -> Diagnostic {
    Diagnostic::error(
        "E0636",
        span,
        format!("the bound of a list is a literal number from 1 to {elements_max}"),
    )
    .label("not such a number")
    .help("write `[item]<100>`")
}

pub(crate) fn list_without_end(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0636", span, format!("nothing says where the list `{name}` ends"))
        .label("where does it end?")
        .help(format!("say it: `&count = self.n` with a number `n` that stands before it, `&until = \"\\r\\n\"`, `&length = self.n` in bytes, or `&last = self.{name}.field == 0` by a field of its last element"))
}

pub(crate) fn two_ends(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0636",
        span,
        format!("the list `{name}` ends in one way, and another was given already"),
    )
    .label("a second end")
    .help("remove one of them; what must hold beside it is a `check`")
}

pub(crate) fn list_without_bound(span: Span, name: &str, is_keyed: bool) -> Diagnostic {
    let diagnostic = Diagnostic::error("E0636", span, format!("nothing bounds the list `{name}`"))
        .label("how many elements at most?");
    let diagnostic = if is_keyed {
        diagnostic.note("A list with keys is kept until its end is seen.")
    } else {
        diagnostic.note("Only a list behind which nothing stands can be passed on as it arrives.")
    };
    diagnostic.help(format!("write how many there are at most behind its type: `{name} : [item]<100>`"))
}

pub(crate) fn keyed_attribute(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0637",
        span,
        format!("`&{name}` stands on a list with keys, and this one has no `&key`"),
    )
    .label("no keys")
    .help("add `&key = name &value = value`, naming two fields of the element")
}

pub(crate) fn keyed_without(span: Span, attribute: &str) -> Diagnostic {
    let other = if attribute == "value" { "key" } else { "value" };
    Diagnostic::error("E0637", span, format!("a list with a `&{other}` needs a `&{attribute}` too"))
        .label(format!("no `&{attribute}`"))
        .help(format!(
            "add `&{attribute} = {}`, naming a field of the element",
            if attribute == "key" { "name" } else { "value" }
        ))
}

pub(crate) fn keyed_member(span: Span, attribute: &str, found: &str, texts: &[String]) -> Diagnostic {
    let help = match similar(found, texts.iter().map(String::as_str)) {
        Some(close) => format!("did you mean `{close}`?"),
        None if texts.is_empty() => "give the element a field that is text".to_owned(),
        None => format!("the texts of an element are {}", list(texts.iter().map(String::as_str))),
    };
    Diagnostic::error("E0637", span, format!("`&{attribute}` names a field of the element that is text"))
        .label("no such field")
        .help(help)
}

pub(crate) fn key_list(span: Span, attribute: &str) -> Diagnostic {
    Diagnostic::error("E0637", span, format!("`&{attribute}` wants keys that are written out"))
        .label("not a literal")
        .help(format!("write `&{attribute} = [\"host\", \"content-length\"]`"))
}

pub(crate) fn key_literal(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0638",
        span,
        "a key is a literal: which keys are looked for is known before a message comes",
    )
    .label("not a literal")
    .help("write the key out: `headers[\"host\"]`, one line for each that is needed")
}

pub(crate) fn key_never(span: Span, key: &str, why: &str, place: Span) -> Diagnostic {
    Diagnostic::error("E0638", span, format!("no element can have the key `{key}`: {why}"))
        .label("never there")
        .also(place, "what a key is made of")
        .help("mend the key")
}

pub(crate) fn too_many_keys(span: Span, found: usize, keys_max: usize) -> Diagnostic {
    Diagnostic::error(
        "E0638",
        span,
        format!("the grammar and the program name {found} keys of this list, {keys_max} at most"),
    )
    .label("too many keys")
    .help("name fewer of them")
}

pub(crate) fn not_keyed(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0638", span, format!("the list `{name}` has no keys"))
        .label("looked into by key")
        .help("give it `&key = ... &value = ...` in the grammar, or take an element by its number: `[0]`")
}

pub(crate) fn list_as_value(span: Span, name: &str, is_keyed: bool, key: Option<&[u8]>) -> Diagnostic {
    let help = if is_keyed {
        let key = key.map_or("host".to_owned(), |key| key.escape_ascii().to_string());
        format!("look into it by key: `self.{name}[\"{key}\"]`")
    } else {
        "a grammar counts elements, `len(self.list)`, where the list has a bound, and looks at them one by one: with `check` in the unit of the element, or `&last`"
            .to_owned()
    };
    Diagnostic::error("E0638", span, format!("the list `{name}` is no value of a grammar"))
        .label("a whole list")
        .help(help)
}

pub(crate) fn run_goes_on(span: Span, name: &str, byte: u8, next: Span) -> Diagnostic {
    let byte = shown(byte);
    Diagnostic::error(
        "E0639",
        span,
        format!("nothing says where {name} ends: what follows may begin with {byte} too"),
    )
    .label(format!("takes {byte}"))
    .also(next, format!("may begin with {byte}"))
    .note("A run takes all bytes that it can, so what follows would never see them.")
    .help("put a literal between them that is none of its bytes, `\" \";`, or let the field end at one: `&until = \" \"`")
}

pub(crate) fn optional_literal(span: Span, byte: u8, next: Span) -> Diagnostic {
    let byte = shown(byte);
    Diagnostic::error(
        "E0639",
        span,
        format!("this literal may be there or not, and what follows may begin with {byte} too"),
    )
    .label("there, or not?")
    .also(next, format!("may begin with {byte}"))
    .help("leave `&optional` away, or write both ways as the cases of a `switch`")
}

pub(crate) fn open_end(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0639",
        span,
        format!("nothing stands behind {name}, so its end is not known before the next message comes"),
    )
    .label("the last of the message")
    .help("let a literal end the message: `\"\\n\";`")
}

pub(crate) fn optional_end(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0639",
        span,
        "this literal may be there or not, and nothing behind it tells before the next message comes",
    )
    .label("the last of the message")
    .help("leave `&optional` away, or let a literal that is always there end the message")
}

/// A byte as it is written in a literal.
fn shown(byte: u8) -> String {
    format!("`{}`", std::ascii::escape_default(byte))
}

pub(crate) fn empty_element(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0640",
        span,
        format!("an element of `{name}` may have no bytes at all, so the list may never end"),
    )
    .label("may be empty")
    .help("give the element something that is always there: a literal, a number, or a text with `&min = 1`")
}

pub(crate) fn behind_to_close(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0641",
        span,
        format!("`{name}` goes on until the peer closes, so nothing can follow it"),
    )
    .label("not the last item")
    .help("move it to the end of the unit, or give it a length")
}

/// `params`: name and type of each.
pub(crate) fn argument_count(
    span: Span,
    name: &str,
    params: &[(String, String)],
    found: usize,
    place: Span,
) -> Diagnostic {
    let names: Vec<&str> = params.iter().map(|(name, _)| name.as_str()).collect();
    let help = if names.is_empty() {
        format!("write `{name}` alone")
    } else {
        let what = if names.len() == 1 { "a value" } else { "values" };
        format!("write `{name}({})`, with {what} for {}", names.join(", "), list(names.iter().copied()))
    };
    let values = if names.len() == 1 { "1 value".to_owned() } else { format!("{} values", names.len()) };
    let given = match found {
        0 => "none is given".to_owned(),
        1 => "1 is given".to_owned(),
        _ => format!("{found} are given"),
    };
    let declared: Vec<String> = params.iter().map(|(name, ty)| format!("`{name}`, {ty}")).collect();
    let diagnostic = Diagnostic::error("E0642", span, format!("the unit `{name}` takes {values}, {given}"))
        .label(format!("{found} given"))
        .help(help);
    if declared.is_empty() {
        diagnostic
    } else {
        diagnostic.also(place, format!("takes {}", declared.join("; ")))
    }
}

pub(crate) fn no_params(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0642", span, format!("`{name}` is no unit and takes no values"))
        .label("takes nothing")
        .help(format!("write `{name}`, and say the length with `&length = ...`"))
}

pub(crate) fn param_type(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0642",
        span,
        format!("a unit is given numbers, members and truth values, not {found}"),
    )
    .label("not possible")
    .help("write `limit : uint32`")
}

pub(crate) fn field_named_as_param(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0642", span, format!("`{name}` is a parameter of this unit already"))
        .label("the same name")
        .help("give the field another name: both are written `self.name`")
}

pub(crate) fn message_with_params(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0642",
        span,
        format!("messages of `{name}` cannot be received: nothing gives its parameters values"),
    )
    .label("takes values")
    .help(format!(
        "receive a unit that holds it and gives the values: `type whole = unit {{ all : {name}(100); }};`"
    ))
}

pub(crate) fn field_of_an_element(span: Span, path: &str, list: &str, place: Span) -> Diagnostic {
    Diagnostic::error(
        "E0643",
        span,
        format!("`{path}` is a field of each element of `{list}`, and there may be many"),
    )
    .label("of which element?")
    .also(place, "in each element")
    .help("look at it in the unit of the element, or in the `&last` of the list")
}

pub(crate) fn element_in_a_program(span: Span, path: &str, list: &str, place: Span) -> Diagnostic {
    Diagnostic::error("E0643", span, format!("`{path}` is a field of each element of `{list}`, and there may be many"))
        .label("of which element?")
        .also(place, "in each element")
        .help(format!("a program sees elements as a list: `{list}[0]`, `for item in {list}`, and their one text, or else their bytes"))
}

pub(crate) fn list_inside_itself(span: Span, path: &str) -> Diagnostic {
    Diagnostic::error("E0643", span, format!("`{path}` is not known before its last element has been read"))
        .label("looked into from one of its elements")
        .help("look at the fields of the element instead")
}

pub(crate) fn any_key(span: Span, found: usize) -> Diagnostic {
    Diagnostic::error("E0644", span, format!("`&any` looks at the values of one key, here are {found}"))
        .label("not one key")
        .help("write `&any = has_token(self.headers[\"connection\"], \"close\")`")
}

pub(crate) fn sum_of(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0644",
        span,
        "`&sum` adds up something of each element of one list that stands before it",
    )
    .label("no field of an element")
    .help("write `&sum = len(self.chunks.ext)`")
}

pub(crate) fn default_value(span: Span) -> Diagnostic {
    Diagnostic::error("E0633", span, "`&default` is a literal number that the field can hold")
        .label("not such a number")
        .help("write `&default = 1`")
}

pub(crate) fn kept_type(span: Span) -> Diagnostic {
    Diagnostic::error("E0644", span, "what a request keeps for its reply is a `uint64`")
        .label("another type")
        .help("write `var asked : uint64 &kept;`")
}

pub(crate) fn text_variable(span: Span, path: &str, place: Span) -> Diagnostic {
    Diagnostic::error(
        "E0644",
        span,
        format!("`{path}` is computed where a program reads it, never while a message is read"),
    )
    .label("needed by the grammar")
    .also(place, "a variable that is text")
    .help("decide by the field that it is computed from")
}

pub(crate) fn to_close_as_value(span: Span, path: &str) -> Diagnostic {
    Diagnostic::error(
        "E0645",
        span,
        format!("`{path}` has no end before the peer closes, so nothing can depend on it"),
    )
    .label("not known")
    .help("decide by the fields before it")
}

pub(crate) fn streamed_in_grammar(span: Span, what: &str, path: &str, place: Span) -> Diagnostic {
    Diagnostic::error("E0645", span, format!("{what} needs `{path}`, which is passed on as it arrives"))
        .label("not there as a whole")
        .also(place, "has no bound")
        .help("give it a bound, `bytes<4KiB>`, or decide by the fields before it")
}

pub(crate) fn not_fixed_in_a_tree(span: Span, fact: &str, field: &str) -> Diagnostic {
    Diagnostic::error("E0608", span, format!("`%{fact}` needs a field at a fixed place, but `{field}` stands behind something else than numbers"))
        .label("not among the first numbers")
        .help("name a field before which only sized integers and bits stand")
}

pub(crate) fn fault(span: Span) -> Diagnostic {
    Diagnostic::error("E0646", span, "`&fault` is `malformed`, `too_long`, `name_too_long` or `unsupported`")
        .label("none of them")
        .note("`%on too_long = ...` says what a request that failed so is answered.")
        .help("write `&fault = unsupported`")
}

pub(crate) fn cannot_hold(span: Span, name: &str, byte: u8, why: &str, place: Span) -> Diagnostic {
    let byte = shown(byte);
    Diagnostic::error("E0647", span, format!("`{name}` cannot hold {byte}"))
        .label(format!("has {byte} in it"))
        .also(place, why.to_owned())
        .note("A message with it would be read as something else by whoever gets it.")
        .help("leave it out, or encode the value: `percent_encode(...)`")
}

pub(crate) fn taken_by_a_run(span: Span, name: &str, run: &str, place: Span) -> Diagnostic {
    let title = format!("`{name}` stands right behind `{run}`, which would take the front of this value");
    Diagnostic::error("E0647", span, title)
        .label("may begin with what the run takes")
        .also(place, format!("begins where `{run}` ends"))
        .note("Whoever gets the message would read both fields otherwise.")
        .help("let something stand between them in the grammar, or give a constant that begins with another byte")
}

pub(crate) fn too_short(span: Span, name: &str, found: usize, wanted: u32, place: Span) -> Diagnostic {
    Diagnostic::error("E0647", span, format!("`{name}` has at least {wanted} bytes, this has {found}"))
        .label("too short")
        .also(place, "declared here")
        .help("give it a longer text")
}

pub(crate) fn unbounded_list_read(span: Span, name: &str, place: Span) -> Diagnostic {
    Diagnostic::error(
        "E0648",
        span,
        format!("nothing bounds the list `{name}`, so it is passed on as it arrives"),
    )
    .label("read here")
    .also(place, "declared without a bound")
    .help("declare how many elements there are at most: `[item]<100>`")
}

pub(crate) fn too_many_elements(
    span: Span,
    name: &str,
    found: u64,
    items_max: u64,
    place: Span,
) -> Diagnostic {
    Diagnostic::error(
        "E0648",
        span,
        format!("programs read at most {items_max} elements of the lists of a message, `{name}` and others have {found}"),
    )
    .label("received here")
    .also(place, "declared here")
    .help("declare a smaller bound, or let the list pass without reading it")
}

pub(crate) fn to_close_read(span: Span, name: &str, place: Span) -> Diagnostic {
    Diagnostic::error(
        "E0648",
        span,
        format!("`{name}` goes on until the peer closes; no program sees it whole"),
    )
    .label("used here")
    .also(place, "everything until the peer closes")
    .help("pass the message on as it is, or decide by the fields before it")
}

pub(crate) fn list_is_read_only(span: Span, name: &str, place: Span) -> Diagnostic {
    Diagnostic::error(
        "E0648",
        span,
        format!("the elements of `{name}` have several parts, so a program cannot write them"),
    )
    .label("written here")
    .also(place, "its element has several fields, or none that is text")
    .help("give a message as bytes: `unit_name{wire = ...}`, or let an element have one text")
}

pub(crate) fn two_arms(span: Span, one: &str, other: &str, first: Span) -> Diagnostic {
    Diagnostic::error("E0649", span, format!("`{one}` and `{other}` are never in one message"))
        .label("in another case of the `switch`")
        .also(first, "in one case")
        .help("give the fields of one case only")
}

pub(crate) fn wire_of_a_plain_unit(span: Span, unit: &str, fields: &[&str]) -> Diagnostic {
    let fields: Vec<String> = fields.iter().map(|name| format!("{name} = ...")).collect();
    let title =
        format!("a `{unit}` is not given by its bytes: only units with texts, choices or lists in them are");
    Diagnostic::error("E0649", span, title)
        .label("a plain row of numbers and bytes")
        .help(format!("name its fields: `{unit}{{{}}}`", fields.join(", ")))
}

pub(crate) fn wire_and_fields(span: Span) -> Diagnostic {
    Diagnostic::error("E0649", span, "a message that is given by its bytes has no other fields to give")
        .label("beside `wire`")
        .help("write `unit_name{wire = bytes}` alone, or change the message afterwards: `... with field = value`")
}

pub(crate) fn other_replies(
    span: Span,
    request: &str,
    replies: &str,
    found: &str,
    place: Span,
) -> Diagnostic {
    Diagnostic::error(
        "E0650",
        span,
        format!("a `{request}` is answered by a `{replies}`, not by a `{found}`"),
    )
    .label("these do not go together")
    .also(place, format!("`%replies = {replies}`"))
    .help(format!("write `{request}/{replies}` for a client, `{replies}/{request}` for a backend"))
}

pub(crate) fn held_back(span: Span, unit: &str, name: &str, streamed: &str, place: Span) -> Diagnostic {
    let title =
        format!("`{name}` is looked at and stands behind `{streamed}`, so a long `{unit}` is refused");
    Diagnostic::warning("E0651", span, title)
        .label("known when the message is over")
        .also(place, "would be passed on as it arrives")
        .note("A message is held until all that is looked at is known, and at most 16 KiB are held.")
        .help(format!("write the variable in front of `{streamed}`"))
}

pub(crate) fn bounded_by_default(
    span: Span,
    unit: &str,
    name: &str,
    bytes_max: u32,
    place: Span,
) -> Diagnostic {
    let title = format!(
        "because `{name}` is used here, a `{unit}` with more than {bytes_max} bytes of it is refused"
    );
    Diagnostic::warning("E0651", span, title)
        .label("needs it as a whole")
        .also(place, "would be passed on as it arrives")
        .note(format!("Without a bound of its own, a field that a program uses holds {bytes_max} bytes."))
        .help(format!("say what you mean in a record: `{name}: option<bytes<8KiB>>` is `none` where it is longer, `{name}: bytes<8KiB>` refuses it"))
}

//! E032x and E042x: compound values: options, lists, tuples, records, variants, repetitions.

use crate::diagnostic::Diagnostic;
use crate::hir::Span;

pub(crate) fn list_too_long(span: Span, target: &str, found: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error(
        "E0321",
        span,
        format!("this list may have {found} elements, but {target} holds at most {allowed}"),
    )
    .label(format!("at most {found} elements"))
    .help(format!("cut it, `[..{allowed}]`, or widen the bound of {target}"))
}

pub(crate) fn may_be_none(span: Span, inner: &str) -> Diagnostic {
    let default = match inner {
        "text" | "bytes" => "`(...) else \"\"`",
        "a number" => "`(...) else 0`",
        "a truth value" => "`(...) else false`",
        "a duration" => "`(...) else 0s`",
        _ => "`(...) else other`",
    };
    Diagnostic::error("E0420", span, format!("this may be `none`, but {inner} is needed"))
        .label("an option")
        .help(format!("say what is meant without a value, {default}, or look first: `switch ...:` with the cases `some x:` and `none:`"))
}

pub(crate) fn type_takes_nothing(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0325", span, format!("`{name}` takes nothing in `<...>`"))
        .label("too much")
        .help(format!("write `{name}`"))
}

pub(crate) fn only_global(span: Span, name: &str) -> Diagnostic {
    let help = match name {
        "dict" => {
            "declare it at the left margin, `global name: dict<string<64>, int> max 1000 entries`; every function sees it"
        }
        "counter" => "declare it at the left margin, `global name: counter`; a number is an `int`",
        _ => "declare it at the left margin, `global name: gauge`; a number is an `int`",
    };
    Diagnostic::error("E0428", span, format!("a `{name}` is shared by all sessions, and no value"))
        .label("only behind `global`")
        .help(help)
}

pub(crate) fn option_of_what(span: Span) -> Diagnostic {
    Diagnostic::error("E0325", span, "an `option` says which value it may hold")
        .label("an option of what?")
        .help("write its type in `<...>`: `option<int>`")
}

pub(crate) fn short_tuple(span: Span, parts: usize) -> Diagnostic {
    let help = if parts == 0 {
        "a function that gives nothing is written `-> ()`"
    } else {
        "write the type without parentheses"
    };
    Diagnostic::error("E0325", span, "a tuple has two values or more").label("not a tuple").help(help)
}

pub(crate) fn list_element(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("E0428", span, format!("a list cannot hold {what}"))
        .label("cannot be an element")
        .note("A list holds plain values side by side: numbers, text, addresses, times, and records, tuples, options and variants of them.")
        .help("keep lists side by side instead of inside each other; channels are in the arrays of the process")
}

pub(crate) fn list_without_bound(span: Span, elem: &str) -> Diagnostic {
    Diagnostic::error("E0325", span, "this list has no bound")
        .label("how many elements at most?")
        .note("The memory of a session is known before the program runs.")
        .help(format!("write how many elements it holds at most: `[{elem}]<64>`"))
}

pub(crate) fn list_bound(span: Span, elem: &str, largest: u32) -> Diagnostic {
    Diagnostic::error("E0325", span, format!("a list of `{elem}` holds between 1 and {largest} elements"))
        .label("not such a number")
        .help(format!("write a number up to {largest}: `[{elem}]<{}>`", largest.min(64)))
}

pub(crate) fn list_bound_literal(span: Span, elem: &str) -> Diagnostic {
    Diagnostic::error("E0325", span, "the bound of a list is a literal number")
        .label("not a literal number")
        .help(format!("write it out: `[{elem}]<64>`"))
}

pub(crate) fn foreign_type(span: Span, name: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0203", span, format!("there is no type `{name}`")).label("not a type").help(help)
}

pub(crate) fn message_inside(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0428", span, format!("a record or variant cannot hold {found}"))
        .label("not a plain value")
        .note("A message lives as long as it is under way; what is kept are its fields.")
        .help("keep the fields you need: `key : string<250>`")
}

pub(crate) fn holds_itself(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0326", span, format!("the type `{name}` holds itself, so it has no size"))
        .label("part of itself")
        .help("take the part out; a sequence of values is a list, `[int]<64>`")
}

pub(crate) fn too_deep(span: Span, name: &str, allowed: usize) -> Diagnostic {
    Diagnostic::error("E0326", span, format!("the type `{name}` has types in types more than {allowed} deep"))
        .label("too deep")
        .help("put the fields of the inner types into one record")
}

pub(crate) fn too_wide(span: Span, name: &str, words: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error(
        "E0326",
        span,
        format!("a value of `{name}` has {words} parts, more than the {allowed} allowed"),
    )
    .label("too many parts")
    .note("A record has the parts of all its fields, a variant those of all its cases and one more.")
    .help("split it into types that are used one after the other")
}

pub(crate) fn wide_tuple(span: Span, words: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error("E0326", span, format!("this tuple has {words} parts, more than the {allowed} allowed"))
        .label("too many parts")
        .note("A tuple of tuples has the parts of all of them.")
        .help("keep the values under names of their own; many of one type are a list")
}

pub(crate) fn random_of_nothing(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0320",
        span,
        "`random` needs at least one number to choose from, and this may be less than 1",
    )
    .label("may be 0 or less")
    .help("say that it is at least 1: `random(max(n, 1))`")
}

pub(crate) fn separator(span: Span) -> Diagnostic {
    Diagnostic::error("E0424", span, "the separator of `split` is a literal that is not empty")
        .label("not such a literal")
        .help("write it out: `split(text, \",\", 16)`")
}

pub(crate) fn split_count(span: Span, largest: u32) -> Diagnostic {
    Diagnostic::error(
        "E0325",
        span,
        format!("`split` makes a literal number of parts, between 1 and {largest}"),
    )
    .label("not such a number")
    .note("The last part has the rest of the text, with its separators.")
    .help("write how many parts there are at most: `split(text, \",\", 16)`")
}

pub(crate) fn counter_set(span: Span, name: &str, decl: Span) -> Diagnostic {
    Diagnostic::error("E0429", span, format!("the counter `{name}` only goes up"))
        .label("sets it")
        .also(decl, "declared here")
        .help(format!("declare `global {name}: gauge` to set it, or add with `count({name}, n)`"))
}

pub(crate) fn joined_too_long(span: Span, total: u64, allowed: u32) -> Diagnostic {
    Diagnostic::error(
        "E0323",
        span,
        format!("the joined text may be {total} bytes long, more than the {allowed} there may be"),
    )
    .label(format!("up to {total} bytes"))
    .help("cut the parts before they are joined: `a[..200] + b[..200]`")
}

pub(crate) fn tuple_by_index(span: Span) -> Diagnostic {
    Diagnostic::error("E0416", span, "a value of a tuple is taken with a dot")
        .label("this is a tuple")
        .help("write `pair.0` for the first value, `pair.1` for the next")
}

pub(crate) fn not_sliceable(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0416", span, format!("`[a..b]` cuts text, bytes and lists, but this is {found}"))
        .label(format!("this is {found}"))
        .help("cut a text, bytes or a list: `req.key[..16]`")
}

pub(crate) fn short_tuple_value(span: Span, parts: usize) -> Diagnostic {
    let help = if parts == 0 {
        "there is no empty value; `none` is an option without one, and a function that gives nothing just ends"
    } else {
        "write the value without the comma"
    };
    Diagnostic::error("E0423", span, "a tuple has two values or more").label("not a tuple").help(help)
}

pub(crate) fn no_part(span: Span, found: &str, of: &str) -> Diagnostic {
    let help = if found.contains("channel") {
        "pass the channel to a function as a parameter, or keep its index: `backends[i]`"
    } else {
        "use it by its name: `name[key]`, `len(name)`, `count(name)`"
    };
    Diagnostic::error("E0428", span, format!("{found} is no value that {of} can hold"))
        .label(format!("this is {found}"))
        .help(help)
}

pub(crate) fn tuple_position(span: Span, parts: usize, position: u64) -> Diagnostic {
    Diagnostic::error("E0423", span, format!("this tuple has {parts} values; there is no number {position}"))
        .label("no such value")
        .help(format!("the values are numbered from `.0` to `.{}`", parts.saturating_sub(1)))
}

pub(crate) fn not_a_tuple(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0423", span, format!("{found} is no tuple, and has no values by number"))
        .label(format!("this is {found}"))
        .help("the fields of a message or record have names, `req.key`; an element of a list is `xs[0]`")
}

pub(crate) fn elements_differ(span: Span, wanted: &str, first: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0406", span, format!("one element is {wanted}, another {found}"))
        .label(format!("this is {found}"))
        .also(first, format!("this is {wanted}"))
        .help("let all elements be of the same kind; values of several kinds go together in a tuple or a variant")
}

pub(crate) fn list_too_large(span: Span, elem: &str, found: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error(
        "E0322",
        span,
        format!("this list of `{elem}` may have {found} elements, more than the {allowed} there is room for"),
    )
    .label(format!("up to {found} elements"))
    .help(format!(
        "go through fewer: cut a list first, `xs[..{allowed}]`, or a range, `0..min(n, {allowed})`"
    ))
}

pub(crate) fn message_element(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0428", span, format!("a list that a program makes cannot hold {found}"))
        .label("not a plain value")
        .note("A message lives as long as it is under way; only the replies of `ask all` come as a list.")
        .help("put the fields you need into the list: `req.key`")
}

pub(crate) fn never_none(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0421", span, format!("this is {found}, which is always there"))
        .label("never `none`")
        .help("leave out what stands for `none`; only an option has it")
}

pub(crate) fn fields_missing(span: Span, record: &str, first: &str, count: usize, decl: Span) -> Diagnostic {
    let title = match count {
        1 => format!("`{first}` of `{record}` is given no value"),
        _ => format!("`{first}` and {} more fields of `{record}` are given no value", count - 1),
    };
    Diagnostic::error("E0425", span, title)
        .label("not complete")
        .also(decl, "declared here")
        .help(format!("give every field a value: `{record}{{{first} = ..., ...}}`"))
}

pub(crate) fn unknown_case(span: Span, of: &str, name: &str, known: &[&str]) -> Diagnostic {
    let help = match super::similar(name, known.iter().copied()) {
        Some(close) => format!("did you mean `{close}`?"),
        None => format!("its cases are {}", super::list(known.iter().copied())),
    };
    let what = if of == "option" { "an option".to_owned() } else { format!("`{of}`") };
    Diagnostic::error("E0206", span, format!("{what} has no case `{name}`")).label("no such case").help(help)
}

pub(crate) fn carries_nothing(span: Span, case: &str) -> Diagnostic {
    Diagnostic::error("E0426", span, format!("`{case}` carries no value"))
        .label("too much")
        .help(format!("write `{case}`"))
}

pub(crate) fn carries(span: Span, case: &str, carried: &str, found: usize) -> Diagnostic {
    let title = match found {
        0 => format!("`{case}` carries a value of type `{carried}`"),
        _ => format!("`{case}` carries one value of type `{carried}`, but is given {found}"),
    };
    let given = if carried.starts_with('(') { "(..., ...)" } else { "(...)" };
    Diagnostic::error("E0426", span, title)
        .label("its value is missing")
        .help(format!("write `{case}{given}`"))
}

pub(crate) fn parts_differ(span: Span, names: usize, parts: usize) -> Diagnostic {
    Diagnostic::error("E0423", span, format!("here are {names} names for a tuple of {parts} values"))
        .label(format!("{names} names"))
        .help("give every value a name; `_` stands for one that is not needed")
}

pub(crate) fn no_parts(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0423", span, format!("{found} has no parts to name"))
        .label("several names for one value")
        .help("give it one name: `let x = ...`")
}

pub(crate) fn nested_parts(span: Span) -> Diagnostic {
    Diagnostic::error("E0423", span, "names of parts do not stand inside each other")
        .label("parts of a part")
        .help("name the part, and take it apart in a line of its own: `let (a, b) = part`")
}

pub(crate) fn duration_too_long(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0424",
        span,
        "this duration is longer than the 2562047 hours that can be counted in nanoseconds",
    )
    .label("too long")
    .help("write a shorter one")
}

pub(crate) fn address_literal(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error(
        "E0424",
        span,
        format!("`{name}(...)` takes a literal, so that a wrong address is found before the program runs"),
    )
    .label("not a literal")
    .help(format!("write it out: {}", example(name)))
}

pub(crate) fn bad_address(span: Span, name: &str, text: &str) -> Diagnostic {
    let what = match name {
        "ipv4" => "an IPv4 address",
        "ipv6" => "an IPv6 address",
        _ => "an address with a port",
    };
    Diagnostic::error("E0424", span, format!("{text:?} is not {what}"))
        .label(format!("not {what}"))
        .help(format!("write it like {}", example(name)))
}

fn example(name: &str) -> &'static str {
    match name {
        "ipv4" => "`ipv4(\"10.0.0.1\")`",
        "ipv6" => "`ipv6(\"2001:db8::1\")`",
        _ => "`endpoint(\"10.0.0.1:80\")`",
    }
}

pub(crate) fn binding_of_several(span: Span) -> Diagnostic {
    Diagnostic::error("E0427", span, "a name for what a case carries stands with one case alone")
        .label("of which of them?")
        .help("give each case a line of its own")
}

pub(crate) fn binds_nothing(span: Span, case: &str) -> Diagnostic {
    Diagnostic::error("E0427", span, format!("`{case}` carries no value that could have a name"))
        .label("names nothing")
        .help(format!("write `{case}: ...`"))
}

pub(crate) fn binds_in_plain(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0427", span, format!("{found} carries nothing that a case could name"))
        .label("names nothing")
        .help("only the cases of variants and options carry values: `circle r: ...`, `some x: ...`")
}

pub(crate) fn else_for_nothing(span: Span) -> Diagnostic {
    Diagnostic::error("E0407", span, "every case has its line; the `else` is never reached")
        .label("never reached")
        .help("remove it; a case that is added later is then reported here")
}

pub(crate) fn cases_missing(span: Span, first: &str, more: usize, example: &str) -> Diagnostic {
    let label = match more {
        0 => format!("`{first}` is missing"),
        _ => format!("`{first}` and {more} more are missing"),
    };
    Diagnostic::error("E0405", span, "this `switch` does not say what happens in every case")
        .label(label)
        .help(format!("add a line `{example}`, or `else: ...` for all the others"))
}

pub(crate) fn filter_of_channels(span: Span) -> Diagnostic {
    Diagnostic::error("E0430", span, "a list cannot hold channels")
        .label("would be a list of channels")
        .help("keep their indices: `filter i in 0..len(backends): alive(backends[i])`")
}

pub(crate) fn open_accumulator(span: Span) -> Diagnostic {
    Diagnostic::error("E0422", span, "nothing says what this begins with")
        .label("of which type?")
        .help("let the `fold` be the result of a function, whose heading says the type: `-> (option<int>)`")
}

pub(crate) fn open_type(span: Span) -> Diagnostic {
    Diagnostic::error("E0422", span, "nothing says of which type this is")
        .label("an option or list of what?")
        .help("use it where a type is known: as the result of a function, as an argument, or beside a value")
}

pub(crate) fn accumulator_differs(span: Span, wanted: &str, first: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0431", span, format!("this `fold` begins with {wanted}, but goes on with {found}"))
        .label(format!("gives {found}"))
        .also(first, format!("begins with {wanted}"))
        .help("let the body give the next value of what is gathered, of the same type")
}

pub(crate) fn accumulator_grows(span: Span, name: &str, found: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error("E0324", span, format!("{name} grows from round to round: it may be {found} bytes long after one that begins with {allowed}"))
        .label("longer in every round")
        .note("What is gathered has one bound for all rounds, so that its memory is known.")
        .help("cut what a round gives: `(...)[..200]`")
}

pub(crate) fn message_accumulator(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0428", span, format!("a `fold` cannot gather {found}"))
        .label("not a plain value")
        .help("gather the fields you need, and build the message behind the `fold`")
}

pub(crate) fn loops_too_deep(span: Span, allowed: usize) -> Diagnostic {
    Diagnostic::error("E0320", span, format!("more than {allowed} repetitions stand inside each other"))
        .label("too deep")
        .help("do part of the work in front of the repetition")
}

pub(crate) fn not_iterable(span: Span, found: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0430", span, format!("{found} cannot be gone through"))
        .label(format!("this is {found}"))
        .help(help.to_owned())
}

pub(crate) fn range_without_bound(span: Span, trips: i128, allowed: u32) -> Diagnostic {
    let found =
        if trips > i128::from(u32::MAX) { "any number of".to_owned() } else { format!("up to {trips}") };
    Diagnostic::error("E0320", span, format!("this range has {found} rounds, more than the {allowed} allowed"))
        .label("no bound that is small enough")
        .note("A task must finish by itself, so the types of both ends must say how often a repetition runs at most.")
        .help("bound its end: `0..min(n, 100)`")
}

pub(crate) fn lone_range(span: Span) -> Diagnostic {
    Diagnostic::error("E0430", span, "a range is no value of its own")
        .label("only behind `in` of a repetition, and in `[...]`")
        .help("go through it, `for i in a..b:`, or compare: `a <= x and x < b`")
}

pub(crate) fn not_a_collection(span: Span, found: &str) -> Diagnostic {
    let help = match found {
        "text" | "bytes" => "look for a part of a text with `contains(text, part)`",
        _ => "`x in xs` asks a list, `key in d` a dictionary, `x in { a, b }` a few written values",
    };
    Diagnostic::error("E0430", span, format!("nothing is `in` {found}"))
        .label(format!("this is {found}"))
        .help(help)
}

pub(crate) fn piped_into(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0402", span, format!("no message is piped into `{name}`"))
        .label("takes its value in parentheses")
        .help(format!("write `{name}(...)` in a line of its own, with `let`"))
}

pub(crate) fn no_conversion(span: Span, name: &str) -> Diagnostic {
    let help = match name {
        "string" => "a number is text with `str(n)`, bytes are with `text(b)`; to cut a text write `s[..64]`",
        "bytes" => "text is bytes with `raw(s)`",
        "bool" => "compare: `x != 0`",
        "time" => "the time is `now()`; a duration is added to it or taken from it",
        "duration" => "a number is a duration with a unit: `n * 1ms`",
        "option" => "a value is an option with `some(x)`",
        _ => "declare it at the left margin with `global`",
    };
    Diagnostic::error("E0432", span, format!("`{name}` is a type, and makes no value of another"))
        .label("a type")
        .help(help)
}

pub(crate) fn no_methods(span: Span, method: &str, receiver: &str) -> Diagnostic {
    let help = match method {
        "append" | "push" | "add" => "lists do not change; make a new one with `map x in xs: ...`".to_owned(),
        "len" | "length" | "size" => format!("write `len({receiver})`"),
        "startswith" | "startsWith" => format!("write `starts_with({receiver}, ...)`"),
        "endswith" | "endsWith" => format!("write `ends_with({receiver}, ...)`"),
        "unwrap" | "unwrap_or" | "orElse" => {
            format!("write `{receiver} else 0`, with what is meant without a value")
        }
        "get" => format!("write `{receiver}[key]`, which is an option"),
        "to_string" | "toString" => format!("write `str({receiver})`"),
        _ => format!("a function takes the value as an argument: `{method}({receiver})`"),
    };
    Diagnostic::error("E0433", span, "values have no methods").label("not a function").help(help)
}

pub(crate) fn tuple_field_name(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0423", span, format!("the values of a tuple have numbers, not names like `{name}`"))
        .label("not a number")
        .help("write `pair.0` for the first value, or name them: `let (a, b) = pair`")
}

pub(crate) fn variant_field(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0417", span, format!("{found} has no fields; what it carries depends on its case"))
        .label(format!("this is {found}"))
        .help("look at its cases: `switch ...:` with a line `circle r: ...` for each")
}

/// `names`: fields that can be given; `given`: how many values are.
pub(crate) fn positional_without_record(span: Span, unit: &str, names: &[&str], given: usize) -> Diagnostic {
    let named: Vec<String> = names.iter().take(given.max(1)).map(|name| format!("{name} = ...")).collect();
    Diagnostic::error("E0434", span, format!("no record says in which order `{unit}` takes its fields"))
        .label("values without names")
        .help(format!("name the fields, for example `{unit}{{{}}}`, or declare `type {unit}: record` with these fields in this order", named.join(", ")))
}

pub(crate) fn too_much_built(
    span: Span,
    built: u64,
    allowed: u64,
    worst: Option<(Span, String)>,
) -> Diagnostic {
    let title = format!(
        "one message may make {built} bytes of text, lists and changed messages here, more than the {allowed} allowed"
    );
    let diagnostic = Diagnostic::error("E0327", span, title)
        .label(format!("up to {built} bytes"))
        .note("What a rule joins, splits, maps, looks up and changes in messages is kept until it has ended; a repetition makes it anew in every round.")
        .help("bound texts and lists where they are made: `(a + b)[..200]`, `xs[..16]`; and make them once, in front of a repetition");
    match worst {
        Some((span, name)) => diagnostic.also(span, format!("`{name}` makes most")),
        None => diagnostic,
    }
}

pub(crate) fn misplaced_room(span: Span) -> Diagnostic {
    Diagnostic::error("E0328", span, "`room()` is the whole condition of an `if`, and nothing else")
        .label("not in front of a branch")
        .note("It asks for all that the branch behind it may build, so it stands in front of one.")
        .help("write `if room(): ... else: ...`")
}

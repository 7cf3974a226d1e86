//! E032x and E042x: compound values: options, lists, tuples, records, variants, loops.

use super::counted;
use crate::diagnostic::Diagnostic;
use crate::hir::Span;

pub(crate) fn list_too_long(span: Span, target: &str, found: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error(
        "E0321",
        span,
        format!("list may be too long: up to {found} elements, but {target} holds at most {allowed}"),
    )
    .label(format!("up to {found} elements"))
    .help(format!("truncate it, `[..{allowed}]`, or raise the bound of {target}"))
}

pub(crate) fn may_be_none(span: Span, inner: &str) -> Diagnostic {
    let default = match inner {
        "a string" | "bytes" => "`(...) else \"\"`",
        "an integer" => "`(...) else 0`",
        "a boolean" => "`(...) else false`",
        "a duration" => "`(...) else 0s`",
        _ => "`(...) else other`",
    };
    Diagnostic::error("E0420", span, format!("expected {inner}, found an option, which may be `none`"))
        .label("an option")
        .help(format!("write a default value, {default}, or handle `none`: `switch ...:` with the cases `some x:` and `none:`"))
}

pub(crate) fn unexpected_type_arguments(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0325", span, format!("type arguments are not allowed on `{name}`"))
        .label("not allowed")
        .help(format!("write `{name}`"))
}

pub(crate) fn only_global(span: Span, name: &str) -> Diagnostic {
    let help = match name {
        "dict" => {
            "declare it outside the process, `global name: dict<string<64>, int> max 1000 entries`; every function can use it"
        }
        "counter" => "declare it outside the process, `global name: counter`; an integer is an `int`",
        _ => "declare it outside the process, `global name: gauge`; an integer is an `int`",
    };
    Diagnostic::error("E0428", span, format!("`{name}` is only allowed as the type of a `global`"))
        .label("only allowed after `global`")
        .help(help)
}

pub(crate) fn option_without_type(span: Span) -> Diagnostic {
    Diagnostic::error("E0325", span, "missing type argument for `option`")
        .label("expected 1 type argument")
        .help("write the type of its value: `option<int>`")
}

pub(crate) fn short_tuple(span: Span, parts: usize) -> Diagnostic {
    let help = if parts == 0 {
        "a function without a result is declared `-> ()`"
    } else {
        "write the type without parentheses"
    };
    Diagnostic::error("E0325", span, "a tuple type needs at least two elements")
        .label("not a tuple")
        .help(help)
}

pub(crate) fn list_element(span: Span, what: &str) -> Diagnostic {
    Diagnostic::error("E0428", span, format!("invalid element type: a list cannot contain {what}"))
        .label("invalid element type")
        .note("A list contains plain values: integers, strings, addresses, times, and records, tuples, options and variants of them.")
        .help("use separate lists instead of nested ones; channels are in the arrays of the process")
}

pub(crate) fn list_without_bound(span: Span, elem: &str) -> Diagnostic {
    Diagnostic::error("E0325", span, "missing bound: this list type has no maximum length")
        .label("missing bound")
        .note("The memory of a session is known before the program runs.")
        .help(format!("write the maximum number of elements: `[{elem}]<64>`"))
}

pub(crate) fn list_bound(span: Span, elem: &str, largest: u32) -> Diagnostic {
    Diagnostic::error(
        "E0325",
        span,
        format!("invalid bound: the bound of a list of `{elem}` is between 1 and {largest}"),
    )
    .label("out of range")
    .help(format!("write a number up to {largest}: `[{elem}]<{}>`", largest.min(64)))
}

pub(crate) fn list_bound_literal(span: Span, elem: &str) -> Diagnostic {
    Diagnostic::error("E0325", span, "invalid bound: the bound of a list must be a literal number")
        .label("expected a literal number")
        .help(format!("write a literal: `[{elem}]<64>`"))
}

pub(crate) fn message_inside(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0428",
        span,
        format!("invalid field type: a record or variant cannot contain {found}"),
    )
    .label("not a plain value")
    .note("A message is freed when its rule has finished; only its fields can be kept.")
    .help("keep the fields you need: `key : string<250>`")
}

pub(crate) fn recursive_type(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0326", span, format!("recursive type `{name}` has infinite size"))
        .label("recursive without a bound")
        .help("remove the recursive field; a sequence of values is a list, `[int]<64>`")
}

pub(crate) fn too_deep(span: Span, name: &str, allowed: usize) -> Diagnostic {
    Diagnostic::error(
        "E0326",
        span,
        format!("type `{name}` is nested too deeply: the limit is {allowed} levels"),
    )
    .label("nested too deeply")
    .help("put the fields of the inner types into one record")
}

pub(crate) fn too_wide(span: Span, name: &str, words: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error(
        "E0326",
        span,
        format!("type `{name}` is too large: {words} words, the limit is {allowed}"),
    )
    .label("too large")
    .note("A record has the words of all its fields; a variant has those of all its cases and one more.")
    .help("split it into smaller types that are used one after the other")
}

pub(crate) fn wide_tuple(span: Span, words: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error("E0326", span, format!("tuple is too large: {words} words, the limit is {allowed}"))
        .label("too large")
        .note("A tuple has the words of all its elements.")
        .help("use separate variables; put many values of one type into a list")
}

pub(crate) fn random_argument(span: Span) -> Diagnostic {
    Diagnostic::error("E0320", span, "the argument of `random` may be less than 1")
        .label("may be 0 or less")
        .help("make it at least 1: `random(max(n, 1))`")
}

pub(crate) fn separator(span: Span) -> Diagnostic {
    Diagnostic::error("E0424", span, "invalid separator: `split` expects a literal that is not empty")
        .label("expected a non-empty literal")
        .help("write a literal: `split(text, \",\", 16)`")
}

pub(crate) fn split_count(span: Span, largest: u32) -> Diagnostic {
    Diagnostic::error(
        "E0325",
        span,
        format!("invalid bound: `split` expects a literal number of parts between 1 and {largest}"),
    )
    .label("expected a literal number")
    .note("The last part is the rest of the string, with its separators.")
    .help("write the maximum number of parts: `split(text, \",\", 16)`")
}

pub(crate) fn counter_set(span: Span, name: &str, decl: Span) -> Diagnostic {
    Diagnostic::error(
        "E0429",
        span,
        format!("cannot set counter `{name}`: a counter can only be incremented"),
    )
    .label("set here")
    .also(decl, "declared here")
    .help(format!("declare `global {name}: gauge` to set it, or increment it with `count({name}, n)`"))
}

pub(crate) fn joined_too_long(span: Span, total: u64, allowed: u32) -> Diagnostic {
    Diagnostic::error(
        "E0323",
        span,
        format!("concatenated string may be too long: up to {total} bytes, the limit is {allowed}"),
    )
    .label(format!("up to {total} bytes"))
    .help("truncate the operands: `a[..200] + b[..200]`")
}

pub(crate) fn tuple_by_index(span: Span) -> Diagnostic {
    Diagnostic::error("E0416", span, "cannot index into a tuple")
        .label("this is a tuple")
        .help("write `pair.0` for the first element, `pair.1` for the second")
}

pub(crate) fn not_sliceable(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0416", span, format!("cannot slice {found}"))
        .label(format!("this is {found}"))
        .help("slice a string, bytes or a list: `req.key[..16]`")
}

pub(crate) fn short_tuple_value(span: Span, parts: usize) -> Diagnostic {
    let help = if parts == 0 {
        "there is no empty value; an option without a value is `none`, and a function without a result just ends"
    } else {
        "write the value without the comma"
    };
    Diagnostic::error("E0423", span, "a tuple needs at least two elements").label("not a tuple").help(help)
}

/// `of` is what should store the value: "a tuple".
pub(crate) fn not_storable(span: Span, found: &str, of: &str) -> Diagnostic {
    let help = if found.contains("channel") {
        "pass the channel to a function as a parameter, or store its index: `backends[i]`"
    } else {
        "use it by its name: `name[key]`, `len(name)`, `count(name)`"
    };
    Diagnostic::error("E0428", span, format!("{of} cannot contain {found}"))
        .label(format!("this is {found}"))
        .help(help)
}

pub(crate) fn tuple_position(span: Span, parts: usize, position: u64) -> Diagnostic {
    Diagnostic::error("E0423", span, format!("no element `{position}` on a tuple of {parts} elements"))
        .label("unknown element")
        .help(format!("the elements are numbered from `.0` to `.{}`", parts.saturating_sub(1)))
}

pub(crate) fn not_a_tuple(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0423", span, format!("expected a tuple, found {found}"))
        .label(format!("this is {found}"))
        .help("the fields of a message or record have names, `req.key`; an element of a list is `xs[0]`")
}

pub(crate) fn elements_differ(span: Span, wanted: &str, first: Span, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0406",
        span,
        format!("list elements have incompatible types: expected {wanted}, found {found}"),
    )
    .label(format!("this is {found}"))
    .also(first, format!("this is {wanted}"))
    .help("let all elements have one type; put values of several types into a tuple or a variant")
}

pub(crate) fn list_too_large(span: Span, elem: &str, found: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error(
        "E0322",
        span,
        format!("list too large: up to {found} elements of type `{elem}`, the limit is {allowed}"),
    )
    .label(format!("up to {found} elements"))
    .help(format!("iterate over fewer elements: slice the list, `xs[..{allowed}]`, or bound the range, `0..min(n, {allowed})`"))
}

pub(crate) fn message_element(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0428", span, format!("a list cannot contain {found}"))
        .label("not a plain value")
        .note("A message is freed when its rule has finished; only `ask all` returns a list of messages.")
        .help("put the fields you need into the list: `req.key`")
}

pub(crate) fn never_none(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0421", span, format!("expected an option, found {found}, which is never `none`"))
        .label("never `none`")
        .help("remove the default or the comparison with `none`; only an option can be `none`")
}

pub(crate) fn fields_missing(span: Span, record: &str, first: &str, count: usize, decl: Span) -> Diagnostic {
    let title = match count {
        1 => format!("missing field `{first}` in initializer of `{record}`"),
        2 => format!("missing fields `{first}` and 1 more in initializer of `{record}`"),
        _ => format!("missing fields `{first}` and {} more in initializer of `{record}`", count - 1),
    };
    Diagnostic::error("E0425", span, title)
        .label(if count == 1 { format!("missing `{first}`") } else { "missing fields".to_owned() })
        .also(decl, "declared here")
        .help(format!("give every field a value: `{record}{{{first} = ..., ...}}`"))
}

pub(crate) fn unknown_case(span: Span, of: &str, name: &str, known: &[&str]) -> Diagnostic {
    let help = match super::similar(name, known.iter().copied()) {
        Some(close) => format!("did you mean `{close}`?"),
        None => format!("its cases are {}", super::list(known.iter().copied())),
    };
    let what = if of == "option" { "an option".to_owned() } else { format!("variant `{of}`") };
    Diagnostic::error("E0206", span, format!("no case named `{name}` found for {what}"))
        .label("unknown case")
        .help(help)
}

pub(crate) fn unexpected_case_value(span: Span, case: &str) -> Diagnostic {
    Diagnostic::error("E0426", span, format!("unexpected value: the case `{case}` has no value"))
        .label("unexpected value")
        .help(format!("write `{case}`"))
}

pub(crate) fn wrong_case_values(span: Span, case: &str, carried: &str, found: usize) -> Diagnostic {
    let title = match found {
        0 => format!("missing value: the case `{case}` has a value of type `{carried}`"),
        _ => format!(
            "wrong number of values for the case `{case}`: expected one of type `{carried}`, found {found}"
        ),
    };
    let given = if carried.starts_with('(') { "(..., ...)" } else { "(...)" };
    Diagnostic::error("E0426", span, title)
        .label(if found == 0 { "missing value" } else { "wrong number of values" })
        .help(format!("write `{case}{given}`"))
}

pub(crate) fn wrong_element_count(span: Span, names: usize, elements: usize) -> Diagnostic {
    Diagnostic::error("E0423", span, format!("mismatched tuple: expected {elements} names, found {names}"))
        .label(counted(names, "name"))
        .help("name every element; write `_` for one that is not needed")
}

pub(crate) fn not_destructurable(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0423", span, format!("expected a tuple for several names, found {found}"))
        .label("several names for one value")
        .help("write one name: `let x = ...`")
}

pub(crate) fn nested_destructuring(span: Span) -> Diagnostic {
    Diagnostic::error("E0423", span, "nested tuple patterns are not supported")
        .label("nested pattern")
        .help("name the inner tuple, and destructure it on a line of its own: `let (a, b) = inner`")
}

pub(crate) fn duration_too_long(span: Span) -> Diagnostic {
    Diagnostic::error("E0424", span, "duration out of range: the limit is 2562047 hours")
        .label("out of range")
        .help("write a shorter duration")
}

pub(crate) fn address_literal(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0424", span, format!("`{name}(...)` expects a literal"))
        .label("expected a literal")
        .note("Addresses are checked before the program runs.")
        .help(format!("write a literal: {}", example(name)))
}

pub(crate) fn bad_address(span: Span, name: &str, text: &str) -> Diagnostic {
    let what = match name {
        "ipv4" => "IPv4 address",
        "ipv6" => "IPv6 address",
        _ => "endpoint",
    };
    Diagnostic::error("E0424", span, format!("invalid {what}: {text:?}"))
        .label(format!("invalid {what}"))
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
    Diagnostic::error("E0427", span, "a binding is not allowed on a line with several cases")
        .label("ambiguous binding")
        .help("write each case on a line of its own")
}

pub(crate) fn unexpected_binding(span: Span, case: &str) -> Diagnostic {
    Diagnostic::error("E0427", span, format!("unexpected binding: the case `{case}` has no value"))
        .label("unexpected binding")
        .help(format!("write `{case}: ...`"))
}

pub(crate) fn binding_in_plain_switch(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0427", span, format!("unexpected binding: the cases of {found} have no values"))
        .label("unexpected binding")
        .help("only the cases of variants and options have values: `circle r: ...`, `some x: ...`")
}

pub(crate) fn unreachable_else_of_variant(span: Span) -> Diagnostic {
    Diagnostic::error("E0407", span, "unreachable `else`: every case is covered")
        .label("unreachable")
        .help("remove it; the compiler then reports a case that is added later")
}

pub(crate) fn cases_missing(span: Span, first: &str, more: usize, example: &str) -> Diagnostic {
    let missing = match more {
        0 => format!("`{first}`"),
        _ => format!("`{first}` and {more} more"),
    };
    Diagnostic::error("E0405", span, format!("non-exhaustive `switch`: {missing} not covered"))
        .label(format!("{missing} not covered"))
        .help(format!("add a line `{example}`, or `else: ...` for all the others"))
}

pub(crate) fn filter_of_channels(span: Span) -> Diagnostic {
    Diagnostic::error(
        "E0430",
        span,
        "cannot use `filter` on an array of channels: a list cannot contain channels",
    )
    .label("would be a list of channels")
    .help("filter their indices: `filter i in 0..len(backends): alive(backends[i])`")
}

pub(crate) fn open_accumulator(span: Span) -> Diagnostic {
    Diagnostic::error("E0422", span, "type annotations needed for the initial value of this `fold`")
        .label("cannot infer the type")
        .help("let the `fold` be the result of a function, whose return type is declared: `-> (option<int>)`")
}

pub(crate) fn open_type(span: Span) -> Diagnostic {
    Diagnostic::error("E0422", span, "type annotations needed")
        .label("cannot infer the type of this option or list")
        .help("use it where the type is known: as the result of a function, as an argument, or in a branch beside a typed value")
}

pub(crate) fn accumulator_differs(span: Span, wanted: &str, first: Span, found: &str) -> Diagnostic {
    Diagnostic::error(
        "E0431",
        span,
        format!("mismatched types in a `fold`: expected {wanted}, found {found}"),
    )
    .label(format!("this is {found}"))
    .also(first, format!("initial value: {wanted}"))
    .help("let the body evaluate to the next value of the accumulator, of the same type")
}

pub(crate) fn accumulator_grows(span: Span, name: &str, found: u32, allowed: u32) -> Diagnostic {
    Diagnostic::error(
        "E0324",
        span,
        format!(
            "unbounded accumulator: {name} grows in every iteration, from {allowed} to {found} bytes in one"
        ),
    )
    .label("longer in every iteration")
    .note("An accumulator has one bound for all iterations, so that its memory is known.")
    .help("truncate the value of an iteration: `(...)[..200]`")
}

pub(crate) fn message_accumulator(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0428", span, format!("the accumulator of a `fold` cannot be {found}"))
        .label("not a plain value")
        .help("accumulate the fields you need, and build the message after the `fold`")
}

pub(crate) fn loops_too_deep(span: Span, allowed: usize) -> Diagnostic {
    Diagnostic::error("E0320", span, format!("loops nested too deeply: the limit is {allowed} levels"))
        .label("nested too deeply")
        .help("move part of the work in front of the loop")
}

pub(crate) fn not_iterable(span: Span, found: &str, help: &str) -> Diagnostic {
    Diagnostic::error("E0430", span, format!("cannot iterate over {found}"))
        .label(format!("this is {found}"))
        .help(help.to_owned())
}

pub(crate) fn range_without_bound(span: Span, trips: i128, allowed: u32) -> Diagnostic {
    let found =
        if trips > i128::from(u32::MAX) { "any number of".to_owned() } else { format!("up to {trips}") };
    Diagnostic::error(
        "E0320",
        span,
        format!("missing loop bound: {found} iterations, the limit is {allowed}"),
    )
    .label("bound missing or too large")
    .note("A task must finish by itself, so the types of both ends must bound the number of iterations.")
    .help("bound the end of the range: `0..min(n, 100)`")
}

pub(crate) fn bare_range(span: Span) -> Diagnostic {
    Diagnostic::error("E0430", span, "a range is not a value")
        .label("only allowed after `in` of a loop, and in `[...]`")
        .help("iterate over it, `for i in a..b:`, or compare: `a <= x and x < b`")
}

pub(crate) fn not_a_collection(span: Span, found: &str) -> Diagnostic {
    let help = match found {
        "a string" | "bytes" => "search a string with `contains(text, part)`",
        _ => "`x in xs` searches a list, `key in d` a dictionary, `x in { a, b }` a set of literals",
    };
    Diagnostic::error("E0430", span, format!("cannot apply operator `in` to {found}"))
        .label(format!("this is {found}"))
        .help(help)
}

pub(crate) fn piped_into(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0402", span, format!("cannot pass a message with `=>` to `{name}`"))
        .label("takes its argument in parentheses")
        .help(format!("write `{name}(...)` on a line of its own, with `let`"))
}

pub(crate) fn no_conversion(span: Span, name: &str) -> Diagnostic {
    let help = match name {
        "string" => {
            "convert an integer with `str(n)`, bytes with `text(b)`; truncate a string with `s[..64]`"
        }
        "bytes" => "convert a string with `raw(s)`",
        "bool" => "compare: `x != 0`",
        "time" => "the current time is `now()`; add or subtract a duration",
        "duration" => "multiply an integer by a unit: `n * 1ms`",
        "option" => "wrap a value with `some(x)`",
        _ => "declare it outside the process with `global`",
    };
    Diagnostic::error("E0432", span, format!("type `{name}` has no conversion function"))
        .label("a type")
        .help(help)
}

pub(crate) fn no_methods(span: Span, method: &str, receiver: &str) -> Diagnostic {
    let help = match method {
        "append" | "push" | "add" => {
            "lists are immutable; build a new one with `map x in xs: ...`".to_owned()
        }
        "len" | "length" | "size" => format!("write `len({receiver})`"),
        "startswith" | "startsWith" => format!("write `starts_with({receiver}, ...)`"),
        "endswith" | "endsWith" => format!("write `ends_with({receiver}, ...)`"),
        "unwrap" | "unwrap_or" | "orElse" => format!("write `{receiver} else 0`, with the default value"),
        "get" => format!("write `{receiver}[key]`, which returns an option"),
        "to_string" | "toString" => format!("write `str({receiver})`"),
        _ => format!("call a function with the value as an argument: `{method}({receiver})`"),
    };
    Diagnostic::error("E0433", span, format!("no method named `{method}`: values have no methods"))
        .label("method not found")
        .help(help)
}

pub(crate) fn tuple_field_name(span: Span, name: &str) -> Diagnostic {
    Diagnostic::error("E0423", span, format!("no element `{name}` on a tuple: its elements are numbered"))
        .label("expected a number")
        .help("write `pair.0` for the first element, or name them all: `let (a, b) = pair`")
}

pub(crate) fn variant_field(span: Span, found: &str) -> Diagnostic {
    Diagnostic::error("E0417", span, format!("{found} has no fields: its value depends on its case"))
        .label(format!("this is {found}"))
        .help("match its cases: `switch ...:` with a line `circle r: ...` for each")
}

/// `names`: fields that can be set; `given`: the number of values.
pub(crate) fn positional_without_record(span: Span, unit: &str, names: &[&str], given: usize) -> Diagnostic {
    let named: Vec<String> = names.iter().take(given.max(1)).map(|name| format!("{name} = ...")).collect();
    Diagnostic::error("E0434", span, format!("positional values need a record: no record declares the field order of `{unit}`"))
        .label("values without field names")
        .help(format!("name the fields, for example `{unit}{{{}}}`, or declare `type {unit}: record` with these fields in this order", named.join(", ")))
}

pub(crate) fn too_much_memory(
    span: Span,
    built: u64,
    allowed: u64,
    worst: Option<(Span, String)>,
) -> Diagnostic {
    let title = format!(
        "too much memory: one message may build {built} bytes of strings, lists and changed messages here, the limit is {allowed}"
    );
    let diagnostic = Diagnostic::error("E0327", span, title)
        .label(format!("up to {built} bytes"))
        .note("Strings, lists, dictionary values and changed messages are kept until the rule has finished; a loop builds them again in every iteration.")
        .help("bound strings and lists where they are built, `(a + b)[..200]`, `xs[..16]`, and build them once, in front of a loop");
    match worst {
        Some((span, name)) => diagnostic.also(span, format!("`{name}` builds most")),
        None => diagnostic,
    }
}

pub(crate) fn misplaced_capacity_check(span: Span) -> Diagnostic {
    Diagnostic::error("E0328", span, "`room()` is only allowed as the whole condition of an `if`")
        .label("not the whole condition of an `if`")
        .note("`room()` is true if the output buffer has capacity for everything that the branch may build.")
        .help("write `if room(): ... else: ...`")
}

pub(crate) fn too_many_else_ifs(span: Span, most: usize) -> Diagnostic {
    Diagnostic::error("E0132", span, format!("nested too deeply: the limit is {most} `else if` in a row"))
        .label("exceeds the limit")
        .note("Each `else if` is nested in the `else` before it.")
        .help("write a `switch`, or look the value up in a list or dictionary")
}

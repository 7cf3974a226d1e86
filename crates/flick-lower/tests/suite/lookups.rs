//! Look-ups of a dictionary that rules do by a field of their message.

use std::path::Path;

use flick_abi::KeyLookup;
use flick_ir::data::Module;

use crate::source::{library, lower, lower_with};

/// The look-up of the only rule of a module, which the text form keeps.
fn lookup_of(module: &Module) -> Option<KeyLookup> {
    let [rule] = module.program.rules.as_slice() else { panic!("the program has one rule") };
    let read = flick_ir::text::parse(&flick_ir::text::print(module)).unwrap();
    assert_eq!(read.program.rules[0].lookup, rule.lookup);
    rule.lookup
}

fn keyed(rule: &str) -> Module {
    let text = format!(
        "use memcached_binary\n\
         type cmd: record\n  key : string<250>\n  value : bytes<64>\n\
         global other: dict<string<250>, int> max 10 entries\n\
         global seen: dict<string<250>, int> max 10 entries\n\
         fun times: (key: string<250>) -> (int)\n  seen[key] else 0\n\
         proc P: (cmd/cmd client)\n{rule}"
    );
    lower(&text, library())
}

#[test]
fn key_of_a_message_is_found_through_calls() {
    let module = keyed(
        "  | client => count_of(client)\n\
         fun count_of: (-/cmd client, req: cmd) -> ()\n\
         \x20 if times(req.key) > 0: req => client\n",
    );
    let found = lookup_of(&module).expect("the rule looks a key up");
    assert_eq!(module.program.dicts[found.dict as usize].name, "seen");
}

#[test]
fn key_that_is_the_front_of_a_field_was_not_found() {
    let module = keyed(
        "  | client => count_of(client)\n\
         fun count_of: (-/cmd client, req: cmd) -> ()\n\
         \x20 let key = if len(req.value) == 0: \"all\" else: req.key[..3]\n\
         \x20 if times(key) > 0: req => client\n",
    );
    let found = lookup_of(&module).expect("the rule looks a key up");
    assert_eq!((module.program.dicts[found.dict as usize].name.as_str(), found.bytes_max), ("seen", 3));
}

#[test]
fn computed_key_is_not_a_field() {
    let module = keyed(
        "  | client => count_of(client)\n\
         fun count_of: (-/cmd client, req: cmd) -> ()\n\
         \x20 if times(req.key[1..]) > 0: req => client\n",
    );
    assert_eq!(lookup_of(&module), None);
}

/// The look-up of a program of the key-value server's example, and its dictionary.
fn store_lookup(program: &str, names: [&str; 3]) -> Option<(String, KeyLookup)> {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/key_value_server");
    let text = |name: &str| std::fs::read_to_string(example.join(name)).expect("the example is there");
    let texts = names.map(|name| text(&format!("{name}.flick")));
    let files: Vec<(&str, &str)> = names.into_iter().zip(texts.iter().map(String::as_str)).collect();
    let module = lower_with(&text(program), &files);
    let found = lookup_of(&module)?;
    Some((module.program.dicts[found.dict as usize].name.clone(), found))
}

#[test]
fn store_reads_its_items_by_the_key_of_a_request() {
    let binary = ["memcached_items", "memcached_binary_commands", "memcached_text_commands"];
    let text = ["memcached_items", "memcached_meta_commands", "memcached_text_commands"];
    for (program, names) in [("binary_server.flick", binary), ("key_value_server.flick", text)] {
        let (name, found) = store_lookup(program, names).expect("the store looks keys up");
        assert_eq!((name.as_str(), found.bytes_max.min(250)), ("items", 250), "{program}");
    }
}

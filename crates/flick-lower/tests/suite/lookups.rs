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
fn computed_key_is_not_a_field() {
    let module = keyed(
        "  | client => count_of(client)\n\
         fun count_of: (-/cmd client, req: cmd) -> ()\n\
         \x20 if times(req.key[..3]) > 0: req => client\n",
    );
    assert_eq!(lookup_of(&module), None);
}

#[test]
fn store_reads_its_items_by_the_key_of_a_binary_request() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/key_value_server");
    let text = |name: &str| std::fs::read_to_string(example.join(name)).expect("the example is there");
    let names = ["memcached_items", "memcached_binary_commands"];
    let texts = names.map(|name| text(&format!("{name}.flick")));
    let files: Vec<(&str, &str)> = names.into_iter().zip(texts.iter().map(String::as_str)).collect();
    let module = lower_with(&text("binary_server.flick"), &files);
    let found = lookup_of(&module).expect("the store looks keys up");
    assert_eq!(module.program.dicts[found.dict as usize].name, "items");
}

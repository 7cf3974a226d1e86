//! First bytes that a request may have, as far as its grammar fixes them.

use crate::source::lower_with;

/// The grammar of a file of the library or of the test, and the bytes that its requests may begin with.
fn check(grammar: &str, unit: &str, expected: Option<&[u8]>) {
    let program =
        format!("use g\n\nproc P: ({unit}/{unit} client, {unit}/{unit} backend)\n  client <=> backend\n");
    let module = lower_with(&program, &[("g", grammar)]);
    let first = module.program.channels[0].view.as_ref().expect("it is received from").first;
    let bytes = first.map(|set| -> Vec<u8> {
        (0..=u8::MAX).filter(|byte| set[usize::from(byte / 64)] >> (byte % 64) & 1 == 1).collect()
    });
    assert_eq!(bytes.as_deref(), expected, "{unit}");
    let text = flick_ir::text::print(&module);
    let read = flick_ir::text::parse(&text).expect("what is printed can be read");
    assert_eq!(flick_ir::text::print(&read), text, "the set is part of the text");
}

#[test]
fn only_what_pins_a_byte_counts() {
    check(include_str!("../../../../stdlib/memcached_binary.flick"), "cmd", Some(&[0x80]));
    check(include_str!("../../../../stdlib/lines.flick"), "line", None);
    check(include_str!("../../../../stdlib/frames.flick"), "frame8", None);
    let unit = |fields: &str| format!("type u = unit {{ %order = in_order; {fields} }};");
    check(&unit("a : uint8 &requires = $$ in { 3, 7 };"), "u", Some(&[3, 7]));
    check(&unit("a : uint8; b : uint8; %request = self.b == 1;"), "u", None);
    check(&unit("a : uint8; b : uint8; %request = self.a < 2 and self.b == 1;"), "u", Some(&[0, 1]));
    check(&unit("a : uint8; b : uint8; %request = self.a == 9 or self.b == 1;"), "u", None);
    check(&unit("a : uint8; b : uint8; %request = not (self.a > 0) or self.a == 255;"), "u", Some(&[0, 255]));
    check(&unit("\"Go\" &nocase; a : uint8;"), "u", Some(b"Gg"));
    check(&unit("\"A\"; a : uint8;"), "u", Some(b"A"));
}

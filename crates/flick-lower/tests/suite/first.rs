//! First.
use crate::hand;
#[test]
fn first() {
    let program = hand::program(hand::memcached_fields(), hand::memcached_facts(), &[11]);
    let module = flick_lower::lower(&program);
    println!("{}", flick_ir::text::print(&module));
    let errors = flick_ir::verify(&module);
    assert!(errors.is_empty(), "{errors:?}");
}

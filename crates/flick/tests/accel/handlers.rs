//! Signal handlers that use the pipe of the call which they interrupt (`handlers.c`): that call starts again in the
//! kernel, where its bytes have to be.

use super::Setting;
use super::moving::setting_with;

fn setting(name: &str) -> Setting {
    setting_with(&format!("handlers-{name}"), "handlers")
}

#[test]
fn write_that_a_handler_interrupted_came_behind_later_ones() {
    setting("writes").check(&["./handlers writes 6"]);
}

#[test]
fn read_that_a_handler_interrupted_slept_beside_the_ring() {
    setting("reads").check(&["./handlers reads 5"; 3]);
}

#[test]
fn pipe_moved_while_a_call_that_a_ring_does_not_serve_was_interrupted() {
    let setting = setting("otherwise");
    for way in ["pwritev2", "splice"] {
        setting.check(&[&format!("./handlers otherwise {way}")]);
    }
}

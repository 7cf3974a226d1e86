//! Calls that a ring does not serve, on a connection that moves and on other files (`calls.c`): they find what they find
//! in the kernel.

use super::moving::setting_with;
use super::{Setting, run};

fn setting(name: &str) -> Setting {
    setting_with(&format!("calls-{name}"), "calls")
}

#[test]
fn select_of_many_descriptors_beside_threads_read_behind_its_set() {
    let setting = setting("many");
    let program = setting.path("calls");
    let program = program.to_str().expect("a path in UTF-8");
    let (status, stdout, stderr) = run(setting.accel(&["--move", "--", program, "select_many"]));
    assert_eq!((status, stdout.as_str()), (0, "selected\n"), "{stderr}");
}

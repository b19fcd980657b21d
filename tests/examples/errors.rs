//! The error that `main` of an example returns, as the process prints it.

use std::process::Command;

use homeostat_test_support::example;

#[test]
fn an_error_of_main_is_printed_for_people_with_its_cause() {
    // No system has room for such a stack, so no thread can start.
    let stack = (1_u64 << 47).to_string();
    let output = Command::new(example!("quickstart")).env("RUST_MIN_STACK", stack).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        "Error: the system cannot start thread poller-watchdog\n\
         Caused by: Resource temporarily unavailable (os error 11)\n"
    );
}

//! Clients that guess credentials. On a held clock, an answer is delayed only if it waits for the clock.

use super::*;
use crate::UserInfo;
use homeostat::base::ManualClock;

fn with_token(path: &str, token: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n")
}

fn guarded(clock: &ManualClock) -> Running<ServerControl> {
    let answer = |_: &IncomingRequest| Reply::text(http::StatusCode::OK, "fine");
    let server = built(|builder| builder.token("right", UserInfo::new("ada")).head_timeout(LONG), answer);
    server.start_on(clock.clock()).unwrap()
}

/// Sends as many wrong tokens as are answered without delay.
fn exhaust(server: &ServerControl) {
    let mut client = RawClient::connect(server);
    for _ in 0..10 {
        client.send(with_token("/", "wrong"));
        assert_eq!(client.reply().status, 401);
    }
}

#[test]
fn repeated_guesses_are_answered_late_and_valid_users_at_once() {
    let clock = ManualClock::new();
    let server = guarded(&clock);
    exhaust(&server);
    let mut guess = RawClient::with(&server, with_token("/", "wrong"));
    clock.wait_for_sleepers(1);
    // The same address, and even the same token at the same time.
    assert_eq!(RawClient::with(&server, with_token("/", "right")).reply().status, 200);
    assert_eq!(RawClient::with(&server, get("/")).reply().status, 401, "no credentials are no guess");
    let mut second = RawClient::with(&server, with_token("/", "wrong"));
    clock.wait_for_sleepers(2);
    clock.advance(Duration::from_millis(100));
    assert_eq!(guess.reply().status, 401);
    assert_eq!(clock.sleepers(), 1, "the next guess waits longer");
    clock.advance(Duration::from_millis(100));
    assert_eq!(second.reply().status, 401);
    assert_eq!(server.counts().failed_authentications, 12);
}

#[test]
fn a_stop_ends_the_wait_of_a_guess() {
    let clock = ManualClock::new();
    let mut server = guarded(&clock);
    exhaust(&server);
    let mut guess = RawClient::with(&server, with_token("/", "wrong"));
    clock.wait_for_sleepers(1);
    server.stop();
    assert_eq!(guess.reply().status, 401);
    server.join_timeout(LONG).unwrap();
}

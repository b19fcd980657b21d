use std::error::Error;
use std::fmt::Debug;
use std::net::Ipv6Addr;

use homeostat_serve::{Access, AccessRequest, AccessTarget, ServerCounts, UserInfo};

use super::*;
use homeostat::base::StartErrorKind;

fn fault(builder: ServerBuilder) -> String {
    let error = builder.build().unwrap_err();
    assert_eq!(error.kind(), StartErrorKind::InvalidSetting);
    error.to_string()
}

#[test]
fn addresses_of_a_network_need_a_decision_and_users() {
    let network = || Server::builder((Ipv4Addr::UNSPECIFIED, 0));
    assert_eq!(
        fault(network()),
        "address is 0.0.0.0:0, but must be on loopback; to serve a network, call `listen_on_network`"
    );
    assert_eq!(
        fault(network().listen_on_network()),
        "address is 0.0.0.0:0, but must be on loopback, because the server has no users; add users, or call \
         `allow_anonymous`"
    );
    let second = Server::builder((Ipv4Addr::LOCALHOST, 0)).listen((Ipv6Addr::UNSPECIFIED, 0));
    assert!(fault(second).starts_with("address is [::]:0, but"));
    let user = || UserInfo::new("ada");
    assert!(network().listen_on_network().token("secret", user()).build().is_ok());
    assert!(network().listen_on_network().allow_anonymous().build().is_ok());
}

#[test]
fn invalid_settings_are_refused_and_secrets_are_not_shown() {
    let builder = || Server::builder((Ipv4Addr::LOCALHOST, 0));
    for (builder, text) in [
        (
            builder().token("", UserInfo::new("ada")),
            "token is hidden, but must be one or more printable ASCII characters",
        ),
        (
            builder().token("a b", UserInfo::new("ada")),
            "token is hidden, but must be one or more printable ASCII characters",
        ),
        (builder().token("secret", UserInfo::default()), "user is \"\", but must be a name"),
        (
            builder().password("", UserInfo::new("ada")),
            "password is hidden, but must be not empty, and its user's name must have no colon",
        ),
        (builder().head_timeout(Duration::ZERO), "head_timeout is 0ns, but must be longer than zero"),
        (builder().stream_life(Duration::ZERO), "stream_life is 0ns, but must be longer than zero"),
        (builder().connections(0), "connections is 0, but must be above zero"),
        (builder().body_limit(usize::MAX), "body_limit is 18446744073709551615, but must be at most 96 MiB"),
        (builder().name("a\0b"), "name is \"a\\0b\", but must be free of NUL characters"),
    ] {
        assert_eq!(fault(builder), text);
    }
    let shown =
        format!("{:?}", builder().token("my-secret", UserInfo::new("ada")).password("my-word", UserInfo::new("bob")));
    assert!(shown.contains("ada") && shown.contains("bob") && !shown.contains("my-"), "{shown}");
}

#[test]
fn an_address_in_use_is_reported() {
    let server = start(|builder| builder);
    let address = server.addresses()[0];
    let error = Server::builder(address).build().unwrap().start().unwrap_err();
    assert_eq!(error.kind(), StartErrorKind::Unavailable);
    assert_eq!(error.to_string(), format!("cannot listen on {address}"));
    assert!(error.source().is_some());
}

#[test]
fn a_server_listens_on_all_its_addresses() {
    let server = start(|builder| builder.listen((Ipv4Addr::new(127, 0, 0, 2), 0)));
    assert_eq!(server.addresses().len(), 2);
    for address in server.addresses() {
        assert_ne!(address.port(), 0);
        assert_eq!(status(&ask(TcpStream::connect(address).unwrap(), "GET", "/", "")), "404");
    }
    let counts = server.counts();
    assert_eq!((counts.accepted_connections, counts.client_errors, counts.refused_connections), (2, 2, 0));
}

#[test]
fn public_types_are_shared_and_shown() {
    fn is_shared<T: Send + Sync + Debug>() {}
    fn is_shown<T: Send + Debug>() {}
    is_shared::<ServerControl>();
    is_shared::<ServerCounts>();
    is_shared::<UserInfo>();
    is_shared::<AccessRequest>();
    is_shared::<AccessTarget>();
    is_shared::<Access>();
    is_shown::<Server>();
    is_shown::<ServerBuilder>();
}

//! Addresses of servers and proxies.

use std::ffi::OsString;

use super::{SERVER, error_of, parse, vars, with};
use crate::KubernetesClient;
use crate::config::identity::Credentials;
use crate::config::secret::Secret;
use crate::config::{ClusterConfig, in_cluster};

fn chosen(config: &ClusterConfig, vars: &impl Fn(&str) -> Option<OsString>) -> Option<String> {
    config.chosen_proxy(vars).map(|proxy| proxy.reveal().to_owned())
}

#[test]
fn the_settings_or_else_the_environment_choose_the_proxy() {
    let config = ClusterConfig::new("https://api.example.com:6443").unwrap();
    let plain = ClusterConfig::new("http://api.example.com").unwrap();
    let set =
        vars(&[("https_proxy", "proxy:3128"), ("HTTP_PROXY", "http://plain:1"), ("NO_PROXY", "other.example.com")]);
    assert_eq!(chosen(&config, &set).as_deref(), Some("http://proxy:3128"));
    assert_eq!(chosen(&plain, &set).as_deref(), Some("http://plain:1"));
    assert_eq!(chosen(&config, &vars(&[])).as_deref(), None);
    // The server's address decides, not the proxy's.
    let direct = vars(&[("HTTPS_PROXY", "http://10.0.0.1:3128"), ("no_proxy", "10.0.0.0/8,.example.com")]);
    assert_eq!(chosen(&config, &direct).as_deref(), None);
    let proxied = ClusterConfig::new("https://192.0.2.1").unwrap();
    assert_eq!(chosen(&proxied, &direct).as_deref(), Some("http://10.0.0.1:3128"));
    // A variable that is set but empty does not hide the other spelling.
    let empty = vars(&[("HTTPS_PROXY", ""), ("https_proxy", "proxy:3128"), ("NO_PROXY", "")]);
    assert_eq!(chosen(&config, &empty).as_deref(), Some("http://proxy:3128"));
    let except = vars(&[("HTTPS_PROXY", "proxy:3128"), ("NO_PROXY", ""), ("no_proxy", ".example.com")]);
    assert_eq!(chosen(&config, &except).as_deref(), None);
    // Errors name the setting.
    assert_eq!(config.chosen_proxy(&empty).unwrap().origin, "variable https_proxy");
    assert_eq!(chosen(&config.proxy("socks5://s:1"), &direct).as_deref(), Some("socks5://s:1"));
}

#[test]
fn an_address_with_an_impossible_port_is_refused() {
    for port in ["99999", "65536", "0", "https", "-1", "+1", " 1", "1a", "443:443", ""] {
        for host in ["h", "10.0.0.1", "[::1]"] {
            for address in
                [format!("https://{host}:{port}"), format!("{host}:{port}/path"), format!("http://{host}:{port}/")]
            {
                let error = ClusterConfig::new(&address).map(|config| config.server().to_owned()).unwrap_err();
                assert!(error.to_string().contains("must be a URL "), "{address}: {error}");
            }
        }
    }
    let expected = "server: is \"https://h:99999\", but must be a URL with a port from 1 to 65535";
    assert_eq!(ClusterConfig::new("https://h:99999").unwrap_err().to_string(), expected);
    let expected = "kubeconfig: the server of the cluster \"k\" is \"https://h:99999\", but must be a URL with a port from 1 to 65535";
    assert_eq!(error_of("server: 'https://h:99999'", ""), expected);
    let pod = vars(&[("KUBERNETES_SERVICE_HOST", "10.0.0.1"), ("KUBERNETES_SERVICE_PORT", "tcp")]);
    let error = in_cluster::config(&pod, "/nowhere").unwrap().unwrap_err().to_string();
    assert!(error.contains("but must be a URL with a port from 1 to 65535"), "{error}");
    for (address, server) in [
        ("h:1", "https://h:1"),
        ("https://h:65535/", "https://h:65535"),
        ("https://[::1]:6443", "https://[::1]:6443"),
        ("http://[::1]/path", "http://[::1]/path"),
        ("https://h", "https://h"),
    ] {
        assert_eq!(ClusterConfig::new(address).unwrap().server(), server);
    }
}

/// The request's path would become part of the fragment, and the request would go to another path.
#[test]
fn an_address_with_a_fragment_is_refused() {
    let expected = "server: is \"https://h:1/a#b\", but must be a URL without a fragment (#…)";
    assert_eq!(ClusterConfig::new("https://h:1/a#b").unwrap_err().to_string(), expected);
    for address in ["https://h#", "h#x", "https://me:s3cret#x@h", "https://me:s3cret/x@h", "https://h:1#s3cret@x"] {
        let error = ClusterConfig::new(address).unwrap_err().to_string();
        assert!(!error.contains("s3cret"), "{error}");
    }
}

/// Returns the error when a client with this proxy is built.
fn refused(config: ClusterConfig) -> String {
    KubernetesClient::new(config).unwrap_err().to_string()
}

#[test]
fn an_unusable_proxy_is_refused_by_its_setting_and_without_its_password() {
    let program = |url: &str| refused(ClusterConfig::new("https://h").unwrap().proxy(url));
    let file = |url: &str| refused(parse(&with(&format!("{SERVER}, proxy-url: '{url}'"), "")).config().unwrap());
    let rest = "the proxy has the scheme \"socks5\", but must be an http or https proxy";
    assert_eq!(program("socks5://s:1"), format!("proxy: {rest}"));
    assert_eq!(file("socks5://s:1"), format!("kubeconfig: proxy-url of the cluster \"k\": {rest}"));
    for port in ["99999", "0", "http", ""] {
        let expected = "proxy: the port of the proxy must be a number from 1 to 65535";
        assert_eq!(program(&format!("http://proxy:{port}")), expected);
        assert_eq!(program(&format!("proxy:{port}")), expected);
    }
    // Without the check, requests would go to the host `me`.
    for url in
        ["http://me:s3cret#x@proxy:1", "http://me:1/s3cret@proxy:1", "http://me:1?s3cret@proxy:1", "http://me#s3cret@p"]
    {
        let error = program(url);
        assert!(error.starts_with("proxy: the proxy ") && !error.contains("s3cret"), "{error}");
    }
    for url in ["http://proxy:3128/", "https://me:pw%23@[::1]:3128", "proxy:3128", "HTTP://proxy"] {
        assert!(KubernetesClient::new(ClusterConfig::new("https://h").unwrap().proxy(url)).is_ok(), "{url}");
    }
}

#[test]
fn an_error_of_settings_made_by_a_program_names_the_server() {
    let config = ClusterConfig::new("https://h:1").unwrap().certificate_authority("none");
    let expected = "settings for https://h:1: the certificate authority has no section BEGIN CERTIFICATE";
    assert_eq!(refused(config), expected);
}

#[test]
fn a_server_without_tls_gets_credentials_only_if_asked() {
    let token = || Credentials::Token(Secret::new("t".to_owned()));
    for server in ["http://h", "HTTP://127.0.0.1:1", "http://localhost"] {
        let config = ClusterConfig::new(server).unwrap().token("t");
        assert_eq!(config.parts().sent_credentials(), Credentials::None);
        assert_eq!(config.send_credentials_without_tls().parts().sent_credentials(), token());
    }
    for server in ["https://h", "HTTPS://h", "h:1"] {
        assert_eq!(ClusterConfig::new(server).unwrap().token("t").parts().sent_credentials(), token());
    }
    for user in
        ["token: t", "username: u, password: p", "exec: {apiVersion: client.authentication.k8s.io/v1, command: x}"]
    {
        let config = parse(&with("server: 'http://h'", user)).config().unwrap();
        assert_ne!(*config.credentials(), Credentials::None);
        assert_eq!(config.parts().sent_credentials(), Credentials::None);
    }
}

//! Client certificates and keys that other clients accept.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::{SERVER, parse, with};
use crate::KubernetesClient;

const V1: &str = include_str!("../../../../homeostat-net/src/tests/certificates/v1-client.pem");
const V1_KEY: &str = include_str!("../../../../homeostat-net/src/tests/certificates/v1-client.key");
const OTHER: &str = include_str!("../../../../homeostat-net/src/tests/certificates/v1-signed.pem");
const P521: &str = include_str!("../../../../homeostat-net/src/tests/certificates/p521.key");
const RSA_1024: &str = include_str!("../../../../homeostat-net/src/tests/certificates/rsa-1024.key");

#[test]
fn a_client_certificate_of_version_1_is_used_and_an_unusable_key_is_named() {
    let client = |certificate: &str, key: &str| {
        let [certificate, key] = [certificate, key].map(|pem| STANDARD.encode(pem));
        let user = format!("client-certificate-data: {certificate}, client-key-data: {key}");
        KubernetesClient::new(parse(&with(SERVER, &user)).config().unwrap())
            .map(drop)
            .map_err(|error| error.to_string())
    };
    client(V1, V1_KEY).unwrap();
    assert_eq!(
        client(OTHER, V1_KEY).unwrap_err(),
        "kubeconfig: the client key is not the key of the client certificate"
    );
    for (key, kind) in [(P521, "an EC key on the curve P-521"), (RSA_1024, "an RSA key of fewer than 2048 bits")] {
        let error = client(V1, key).unwrap_err();
        assert!(
            error.starts_with(&format!("kubeconfig: the client key is {kind}, but must be an RSA key of ")),
            "{error}"
        );
    }
    let error = client(V1, "none").unwrap_err();
    assert_eq!(error, "kubeconfig: the client key is not an unencrypted private key in PEM");
}

//! Self-signed authorities and their certificates, which a test can replace.

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

/// A certificate authority.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

/// A certificate and its private key, both in PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    /// Creates an authority. Each needs its own name, because servers find the issuer of a certificate by name.
    pub(crate) fn new(name: &str) -> Self {
        let mut params = params(name, &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), certificate }
    }

    /// Returns the certificate of the authority in PEM.
    pub(crate) fn certificate(&self) -> &str {
        &self.certificate
    }

    /// Issues a certificate for a server with these names and addresses.
    pub(crate) fn server(&self, names: &[&str]) -> Identity {
        self.issue(params("server", names), ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// Issues a certificate for a user in a group.
    pub(crate) fn client(&self, user: &str, group: &str) -> Identity {
        let mut params = params(user, &[]);
        params.distinguished_name.push(DnType::OrganizationName, group);
        self.issue(params, ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(&self, mut params: CertificateParams, usage: ExtendedKeyUsagePurpose) -> Identity {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}

fn params(name: &str, names: &[&str]) -> CertificateParams {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

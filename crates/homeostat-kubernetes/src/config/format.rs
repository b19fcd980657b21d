//! Parses the text of a kubeconfig and describes its faults.
//!
//! The rules are the same as in `kubectl`. A field with the value null counts as not set. If a field occurs twice, the
//! last one counts. Only the first document of a text counts. The text may be UTF-16.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::PathBuf;

use serde::{Deserialize, Deserializer};

use super::exec::ExecSettings;
use super::field::{Field, FieldList};
use super::secret::Secret;

/// The content of a file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct KubeconfigFile {
    pub(super) current_context: Field<String>,
    pub(super) contexts: FieldList<NamedContext>,
    pub(super) clusters: FieldList<NamedCluster>,
    pub(super) users: FieldList<NamedUser>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedContext {
    pub(super) name: Field<String>,
    pub(super) context: Field<KubeconfigContext>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedCluster {
    pub(super) name: Field<String>,
    pub(super) cluster: Field<Cluster>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedUser {
    pub(super) name: Field<String>,
    pub(super) user: Field<User>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct KubeconfigContext {
    pub(super) cluster: Field<String>,
    pub(super) user: Field<String>,
    pub(super) namespace: Field<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct Cluster {
    pub(super) server: Field<String>,
    pub(super) tls_server_name: Field<String>,
    pub(super) insecure_skip_tls_verify: Field<bool>,
    pub(super) certificate_authority: Field<PathBuf>,
    pub(super) certificate_authority_data: Field<String>,
    pub(super) proxy_url: Field<Secret<String>>,
    pub(super) extensions: FieldList<NamedExtension>,
}

/// Settings for another program.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct NamedExtension {
    pub(super) name: Field<String>,
    pub(super) extension: Option<Secret<serde_json::Value>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(super) struct User {
    pub(super) client_certificate: Field<PathBuf>,
    pub(super) client_certificate_data: Field<String>,
    pub(super) client_key: Field<PathBuf>,
    pub(super) client_key_data: Field<Secret<String>>,
    pub(super) token: Field<Secret<String>>,
    #[serde(rename = "tokenFile")]
    pub(super) token_file: Field<PathBuf>,
    pub(super) username: Field<String>,
    pub(super) password: Field<Secret<String>>,
    #[serde(rename = "as")]
    pub(super) acts_as: Field<String>,
    pub(super) as_uid: Field<String>,
    pub(super) as_groups: FieldList<String>,
    pub(super) as_user_extra: Field<BTreeMap<String, FieldList<String>>>,
    pub(super) auth_provider: Option<AuthProvider>,
    pub(super) exec: Option<ExecSettings>,
}

/// An authentication method that is built into `kubectl`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct AuthProvider {
    pub(super) name: Field<String>,
}

/// Parses the text of a file. Returns its fault, without showing a value.
pub(super) fn read(text: &[u8]) -> Result<KubeconfigFile, String> {
    // An excerpt could show a secret.
    let options = serde_saphyr::options! {
        with_snippet: false,
        duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins,
    };
    let mut reader = Cursor::new(text);
    let first = serde_saphyr::read_with_options::<_, Document>(&mut reader, options).next();
    match first {
        // The file has only comments.
        None => Ok(KubeconfigFile::default()),
        Some(Ok(Document(read))) => read,
        Some(Err(serde_saphyr::Error::IOError { .. })) => Err("the file is not text in UTF-8 or UTF-16".to_owned()),
        Some(Err(error)) => Err(fault("", &error.to_string())),
    }
}

/// The first document of a file, or its fault.
struct Document(Result<KubeconfigFile, String>);

impl<'de> Deserialize<'de> for Document {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(serde_path_to_error::deserialize(deserializer).map_err(|error| {
            let path = error.path().to_string();
            fault(&path, &error.into_inner().to_string())
        })))
    }
}

/// Explains a fault to the file's author. `path` names the field, and `error` comes from the YAML library.
fn fault(path: &str, error: &str) -> String {
    const RULES: [(&str, &str); 4] = [
        ("expected string scalar", "must be a text"),
        ("expected mapping start", "must have fields (name: value)"),
        ("expected sequence start", "must be a list"),
        ("invalid boolean", "must be true or false"),
    ];
    let field = if matches!(path, "" | ".") { "the file" } else { path };
    let rule = RULES.iter().find_map(|(text, rule)| Some((rule, error.strip_prefix(text)?)));
    match rule {
        Some((rule, place)) => format!("{field} {rule}{place}"),
        None if field == "the file" => format!("it is not YAML: {error}"),
        None => format!("{field}: {error}"),
    }
}

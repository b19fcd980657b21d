//! A short hash for names, which is the same in every process and version.

/// Returns the hash of these texts as 16 hexadecimal digits. The same characters, split differently, have another hash.
pub(crate) fn stable_hash(parts: &[&str]) -> String {
    format!("{:016x}", crate::base::hash::stable_hash(parts.iter().map(|part| part.as_bytes())))
}

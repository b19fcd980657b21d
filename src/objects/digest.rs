//! A short name for a long text, the same in every process and version.

/// The 64-bit FNV-1a hash of these texts, as 16 digits. Texts that are divided differently have another one.
pub(crate) fn digest(parts: &[&str]) -> String {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What has been written with it is found by it: it must never become another.
    #[test]
    fn a_digest_is_what_it_always_was() {
        assert_eq!(digest(&[]), "cbf29ce484222325");
        assert_eq!(digest(&["default/web"]), "e75db0d697facf8c");
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }
}

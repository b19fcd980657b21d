//! A short hash for names, the same in every process and version.

/// Returns the 64-bit FNV-1a hash of these texts as 16 hexadecimal digits. The same letters, split differently, give another hash.
pub(crate) fn stable_hash(parts: &[&str]) -> String {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored names contain it, so it must never change.
    #[test]
    fn the_hash_never_changes() {
        assert_eq!(stable_hash(&[]), "cbf29ce484222325");
        assert_eq!(stable_hash(&["default/web"]), "e75db0d697facf8c");
        assert_ne!(stable_hash(&["ab", "c"]), stable_hash(&["a", "bc"]));
    }
}

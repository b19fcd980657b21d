//! A hash that is the same in every process and version.

/// Returns the 64-bit FNV-1a hash of these parts. The same bytes, split differently, give another hash.
pub(super) fn stable_number<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u64 {
    let bytes = parts.into_iter().flat_map(|part| part.iter().copied().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Returns the hash of these texts as 16 hexadecimal digits, for names.
pub(crate) fn stable_hash(parts: &[&str]) -> String {
    format!("{:016x}", stable_number(parts.iter().map(|part| part.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stored names and the assignment of keys depend on it, so it must never change.
    #[test]
    fn the_hash_never_changes() {
        let hash = |parts: &[&str]| stable_number(parts.iter().map(|part| part.as_bytes()));
        assert_eq!(hash(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(&["default/web"]), 0xe75d_b0d6_97fa_cf8c);
        assert_ne!(hash(&["ab", "c"]), hash(&["a", "bc"]));
    }
}

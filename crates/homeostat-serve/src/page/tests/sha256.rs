//! SHA-256 (FIPS 180-4), for the hashes of the content security policy.

use std::fmt::Write;

const INITIAL: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

/// Returns the first 32 bits of the fractional parts of the cube roots of the first 64 primes.
fn constants() -> [u32; 64] {
    let is_prime = |n: &u128| (2..*n).take_while(|d| d * d <= *n).all(|d| !n.is_multiple_of(d));
    let mut primes = (2_u128..).filter(is_prime);
    std::array::from_fn(|_| {
        // The cube root of p × 2^96 is the cube root of p times 2^32, so its low 32 bits are the fraction.
        let cubed = primes.next().unwrap() << 96;
        let root = (0..36).rev().fold(0_u128, |root, bit| {
            let larger = root | 1 << bit;
            if larger.pow(3) <= cubed { larger } else { root }
        });
        u32::try_from(root & 0xffff_ffff).unwrap()
    })
}

pub(in crate::page) fn sha256(message: &[u8]) -> [u8; 32] {
    let constants = constants();
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend((message.len() as u64 * 8).to_be_bytes());
    let mut hash = INITIAL;
    for block in padded.chunks_exact(64) {
        let mut words = [0_u32; 64];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes(bytes.try_into().unwrap());
        }
        for t in 16..64 {
            let s0 = words[t - 15].rotate_right(7) ^ words[t - 15].rotate_right(18) ^ (words[t - 15] >> 3);
            let s1 = words[t - 2].rotate_right(17) ^ words[t - 2].rotate_right(19) ^ (words[t - 2] >> 10);
            words[t] = words[t - 16].wrapping_add(s0).wrapping_add(words[t - 7]).wrapping_add(s1);
        }
        let mut v = hash;
        for t in 0..64 {
            let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
            let choice = (v[4] & v[5]) ^ (!v[4] & v[6]);
            let one = v[7].wrapping_add(s1).wrapping_add(choice).wrapping_add(constants[t]).wrapping_add(words[t]);
            let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
            let majority = (v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]);
            let two = s0.wrapping_add(majority);
            v.rotate_right(1);
            v[4] = v[4].wrapping_add(one);
            v[0] = one.wrapping_add(two);
        }
        for (part, more) in hash.iter_mut().zip(v) {
            *part = part.wrapping_add(more);
        }
    }
    let mut bytes = [0; 32];
    for (to, part) in bytes.chunks_exact_mut(4).zip(hash) {
        to.copy_from_slice(&part.to_be_bytes());
    }
    bytes
}

#[test]
fn the_examples_of_the_standard_match() {
    let hex = |message: &[u8]| {
        sha256(message).iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    };
    assert_eq!(hex(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(hex(b"abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    assert_eq!(hex(two_blocks), "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

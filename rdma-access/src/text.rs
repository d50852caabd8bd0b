//! Texts in C arrays.

use std::ffi::{CStr, c_char};

/// Returns the text in a C array, up to its NUL, the array's end or the first byte that is not UTF-8 (names are
/// ASCII).
pub fn of_array(array: &[c_char]) -> &str {
    // SAFETY: c_char and u8 have the same size and no invalid values.
    let bytes = unsafe { std::slice::from_raw_parts(array.as_ptr().cast::<u8>(), array.len()) };
    let whole = CStr::from_bytes_until_nul(bytes).map_or(bytes, CStr::to_bytes);
    match std::str::from_utf8(whole) {
        Ok(text) => text,
        Err(error) => std::str::from_utf8(&whole[..error.valid_up_to()]).unwrap_or(""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_ends_at_nul_end_or_nonsense() {
        let array = |bytes: &[u8]| bytes.iter().map(|&byte| byte as c_char).collect::<Vec<_>>();
        for (bytes, text) in [
            (&b"mlx5_0\0garbage"[..], "mlx5_0"),
            (b"whole", "whole"),
            (b"\0", ""),
            (b"", ""),
            (b"a\xffb\0", "a"),
        ] {
            assert_eq!(of_array(&array(bytes)), text);
        }
    }
}

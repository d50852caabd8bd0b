//! Host names.

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};

use super::{ADDRESS_LENGTH, AddressError};

/// A host name of at most 64 bytes, without NUL.
///
/// Comparison and hash ignore ASCII case. The bytes need not be UTF-8, since they come from clients and files.
/// Printing escapes control characters and invalid bytes, so a name is safe in a log line.
#[derive(Clone, Copy)]
pub struct Name {
    pub(super) bytes: [u8; ADDRESS_LENGTH],
    length: u8,
}

impl Name {
    /// Makes a name of text.
    ///
    /// # Errors
    /// [`AddressError::NameTooLong`] above 64 bytes, [`AddressError::NameWithNul`] for a NUL inside.
    pub fn new(text: impl AsRef<[u8]>) -> Result<Name, AddressError> {
        let text = text.as_ref();
        if text.len() > ADDRESS_LENGTH {
            return Err(AddressError::NameTooLong { length: text.len() });
        }
        if let Some(at) = text.iter().position(|&byte| byte == 0) {
            return Err(AddressError::NameWithNul { at });
        }
        let mut bytes = [0; ADDRESS_LENGTH];
        bytes[..text.len()].copy_from_slice(text);
        Ok(Name {
            bytes,
            length: text.len() as u8,
        })
    }

    /// Returns the name in an address field: up to the first NUL, or all 64 bytes.
    #[inline]
    #[must_use]
    pub fn from_field(field: &[u8; ADDRESS_LENGTH]) -> Name {
        let length = field.iter().position(|&byte| byte == 0);
        let length = length.unwrap_or(ADDRESS_LENGTH);
        let mut bytes = [0; ADDRESS_LENGTH];
        bytes[..length].copy_from_slice(&field[..length]);
        Name {
            bytes,
            length: length as u8,
        }
    }

    /// Returns the bytes of the name, in their original case.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// Returns the name in lower case, padded with zeros: equal names give equal bytes.
    // Each request by name computes this, so it does not allocate; the fixed length helps the compiler.
    #[inline]
    #[must_use]
    pub fn to_lower_case(&self) -> [u8; ADDRESS_LENGTH] {
        let mut lower = self.bytes;
        lower.make_ascii_lowercase();
        lower
    }

    /// Returns whether the name is empty; no host has such a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }
}

impl PartialEq for Name {
    #[inline]
    fn eq(&self, other: &Name) -> bool {
        // Stops at the first byte that differs, since a search may compare hundreds of names.
        self.as_bytes().eq_ignore_ascii_case(other.as_bytes())
    }
}

impl Eq for Name {}

impl Hash for Name {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.to_lower_case());
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.as_bytes().utf8_chunks() {
            for char in chunk.valid().chars() {
                match char {
                    '"' | '\'' => f.write_char(char)?,
                    _ => write!(f, "{}", char.escape_debug())?,
                }
            }
            for byte in chunk.invalid() {
                write!(f, "\\x{byte:02x}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_compare_without_ascii_case() {
        let names = ["Node-1", "NODE-1", "node-1"].map(|text| Name::new(text).unwrap());
        assert_eq!(HashSet::from(names).len(), 1);
        assert_ne!(Name::new("node-1").unwrap(), Name::new("node-10").unwrap());
        assert_eq!(names[0].to_string(), "Node-1");
    }

    #[test]
    fn a_name_may_fill_its_field() {
        let full = Name::from_field(&[b'n'; ADDRESS_LENGTH]);
        assert_eq!(full.as_bytes().len(), ADDRESS_LENGTH);
        assert_eq!(full, Name::new([b'N'; ADDRESS_LENGTH]).unwrap());
        let error = Name::new([b'n'; ADDRESS_LENGTH + 1]).unwrap_err();
        assert_eq!(error, AddressError::NameTooLong { length: 65 });
        let error = Name::new("a\0b").unwrap_err();
        assert_eq!(error, AddressError::NameWithNul { at: 1 });
        assert!(Name::from_field(&[0; ADDRESS_LENGTH]).is_empty());
    }

    #[test]
    fn a_shown_name_is_one_harmless_line() {
        let shown = |bytes: &[u8]| Name::new(bytes).unwrap().to_string();
        assert_eq!(shown(b"a\nb\x1b[0m"), "a\\nb\\u{1b}[0m");
        assert_eq!(shown(b"\xff\xc3(x"), "\\xff\\xc3(x");
        assert_eq!(shown("käse\u{2028}".as_bytes()), "käse\\u{2028}");
        assert_eq!(shown(b"back\\slash's"), "back\\\\slash's");
        assert_eq!(shown(b"plain-1.example"), "plain-1.example");
    }
}

//! Big-endian (network byte order) integers: `__be16`, `__be32` and `__be64` of `<linux/types.h>`.
//!
//! They have no arithmetic and no order, and each conversion swaps bytes where that is needed, so that a
//! forgotten byte swap does not compile.

use core::fmt;

macro_rules! big_endian {
    ($(#[$doc:meta])* $name:ident, $host:ident, $digits:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[repr(transparent)]
        pub struct $name($host);

        impl $name {
            /// Converts from host byte order.
            pub const fn from_host(value: $host) -> Self {
                Self(value.to_be())
            }

            /// Converts to host byte order.
            pub const fn to_host(self) -> $host {
                $host::from_be(self.0)
            }
        }

        impl From<$host> for $name {
            fn from(value: $host) -> Self {
                Self::from_host(value)
            }
        }

        impl From<$name> for $host {
            fn from(value: $name) -> Self {
                value.to_host()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!("{:#0", $digits, "x}"), self.to_host())
            }
        }
    };
}

big_endian! {
    /// A 16-bit integer in network byte order (C's `__be16`), aligned like a `u16`.
    Be16, u16, "6"
}
big_endian! {
    /// A 32-bit integer in network byte order (C's `__be32`), aligned like a `u32`.
    Be32, u32, "10"
}
big_endian! {
    /// A 64-bit integer in network byte order (C's `__be64`), aligned like a `u64`.
    Be64, u64, "18"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lie_in_network_order() {
        // The bytes in memory, lowest address first.
        assert_eq!(Be16::from_host(0x0102).0.to_ne_bytes(), [1, 2]);
        assert_eq!(Be32::from_host(0x0102_0304).0.to_ne_bytes(), [1, 2, 3, 4]);
        assert_eq!(
            Be64::from_host(0x0102_0304_0506_0708).0.to_ne_bytes(),
            [1, 2, 3, 4, 5, 6, 7, 8]
        );
        assert_eq!(Be16::from_host(0xfffe).to_host(), 0xfffe);
        assert_eq!(Be32::from_host(0xfffe).to_host(), 0xfffe);
        assert_eq!(Be64::from_host(0xfffe).to_host(), 0xfffe);
        assert_eq!(u16::from(Be16::from(0x0102)), 0x0102);
        assert_eq!(Be32::from(0x0102_0304).0.to_ne_bytes(), [1, 2, 3, 4]);
        assert_eq!(u64::from(Be64::from_host(7)), 7);
    }

    #[test]
    fn debug_shows_the_host_value() {
        assert_eq!(format!("{:?}", Be16::from_host(0x35)), "0x0035");
        assert_eq!(format!("{:?}", Be32::from_host(1)), "0x00000001");
        assert_eq!(format!("{:?}", Be64::from_host(1)), "0x0000000000000001");
    }
}

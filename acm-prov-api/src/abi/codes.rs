//! Codes that cross the C boundary.

/// Declares a newtype for a family of C constants. An unknown value is kept; a known one is an associated
/// constant and prints its C name in `Debug`.
macro_rules! codes {
    (
        $(#[$type_doc:meta])*
        pub struct $name:ident($repr:ident), prefix $prefix:literal {
            $( $(#[$code_doc:meta])* $code:ident = $value:expr, )*
        }
    ) => {
        $(#[$type_doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $repr);

        impl $name {
            $( $(#[$code_doc])* pub const $code: Self = Self($value); )*

            /// Every code that the header names, with its C name.
            pub const NAMED: &'static [(&'static str, Self)] =
                &[$( (concat!($prefix, stringify!($code)), Self::$code), )*];

            /// Returns the C name of the code; `None` if the header does not name the value.
            pub fn name(self) -> Option<&'static str> {
                Self::NAMED.iter().find(|(_, code)| *code == self).map(|(name, _)| *name)
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }
    };
}

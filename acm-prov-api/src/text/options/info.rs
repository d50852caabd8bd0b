//! The description of an option in the introspection.

use abi_stable::StableAbi;
use abi_stable::std_types::RString;

use super::Declared;

/// An option that a provider reads from ibacm_opts.cfg, as it [declared](Declared) it.
#[derive(Clone, Debug, PartialEq, Eq, StableAbi)]
#[repr(C)]
pub struct OptionInfo {
    /// The name, as in the file.
    pub key: RString,
    /// The kind of value: `number`, `minutes`, `path`, `text`, or the words to choose from.
    pub kind: RString,
    /// The unit; empty if there is none.
    pub unit: RString,
    /// The default.
    pub default: RString,
    /// The smallest and the largest value; empty if there is none.
    pub range: RString,
    /// The effect, in one line.
    pub summary: RString,
}

impl From<Declared> for OptionInfo {
    fn from(declared: Declared) -> Self {
        Self {
            key: declared.name.into(),
            kind: declared.kind.into(),
            unit: declared.unit.into(),
            default: declared.default.into(),
            range: declared.range.into(),
            summary: declared.help.into(),
        }
    }
}

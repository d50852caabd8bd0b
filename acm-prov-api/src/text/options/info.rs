//! What a library tells of an option.

use abi_stable::StableAbi;
use abi_stable::std_types::RStr;

/// An option that a provider reads from ibacm_opts.cfg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, StableAbi)]
#[repr(C)]
pub struct OptionInfo {
    /// The name, as the file has it.
    pub key: RStr<'static>,
    /// What a value is: `number`, `minutes`, `path`, or the words to choose from.
    pub kind: RStr<'static>,
    /// The unit; empty if there is none.
    pub unit: RStr<'static>,
    /// What holds without it.
    pub default: RStr<'static>,
    /// What it does, in one line.
    pub summary: RStr<'static>,
}

impl OptionInfo {
    /// Describes an option.
    pub const fn new(
        key: &'static str,
        kind: &'static str,
        unit: &'static str,
        default: &'static str,
        summary: &'static str,
    ) -> Self {
        Self {
            key: RStr::from_str(key),
            kind: RStr::from_str(kind),
            unit: RStr::from_str(unit),
            default: RStr::from_str(default),
            summary: RStr::from_str(summary),
        }
    }
}

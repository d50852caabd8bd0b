//! Faulty providers: a correct one, in C, with one fault.
//!
//! Each check declares the fault that it must detect with the macro `fault!`. Tests build faulty providers from them, with the
//! feature `faults`. Without it the faults are empty, so that the operators' program does not contain their texts.

#[cfg(feature = "faults")]
mod patch;

#[cfg(feature = "faults")]
pub use patch::{BadFault, DEPARTURES, EVERYTHING, Fault, NO_FAULT};

/// The empty fault without the feature `faults`.
#[cfg(not(feature = "faults"))]
#[derive(Clone, Copy, Debug)]
pub struct Fault;

/// The empty macro without the feature `faults`.
#[cfg(not(feature = "faults"))]
pub const NO_FAULT: Fault = Fault;

/// Declares the fault of a check, which may name `Fault` and `Status` without imports. Empty without the feature `faults`.
#[cfg(feature = "faults")]
macro_rules! fault {
    ($fault:expr) => {{
        #[allow(unused_imports, reason = "a fault may be a constant")]
        use $crate::suite::{
            Status,
            fault::{EVERYTHING, Fault},
        };
        $fault
    }};
}

#[cfg(not(feature = "faults"))]
macro_rules! fault {
    ($fault:expr) => {
        $crate::suite::fault::Fault
    };
}

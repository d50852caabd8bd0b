//! How the provider's callbacks are called.

/// Calls a slot of the provider's table and traces it, with what the arguments point to; a NULL slot is the caller's to
/// rule out.
macro_rules! call {
    ($core:expr, $slot:ident($($argument:expr),* $(,)?) $(, $($meaning:tt)+)?) => {{
        let callback = $core.provider.$slot.expect(concat!("slot ", stringify!($slot), " is not NULL"));
        $core.shared.trace_begin(stringify!($slot), || {
            let pointers = format!("{:?}", ($($argument,)*));
            $(let pointers = format!("{}; {pointers}", format_args!($($meaning)+));)?
            pointers
        });
        // SAFETY: the arguments are what acm_prov.h asks for. What the provider does with them is what is being tested.
        let result = unsafe { callback($($argument),*) };
        $core.shared.trace_end(stringify!($slot), || format!("{result:?}"));
        result
    }};
}

//! How the provider's callbacks are called.

/// Calls a slot of the provider's table, recorded and traced, with what the arguments point to; a NULL slot is the caller's to
/// rule out.
macro_rules! call {
    ($core:expr, $slot:ident($($argument:expr),* $(,)?) $(, $($meaning:tt)+)?) => {{
        let callback = $core.provider.$slot.expect(concat!("slot ", stringify!($slot), " is not NULL"));
        let meaning = <[String]>::concat(&[$(format!($($meaning)+))?]);
        let recorder = &$core.shared.recorder;
        recorder.begin($crate::recorder::Caller::Core, stringify!($slot), &meaning, || {
            format!("{:?}", ($($argument,)*))
        });
        let watch = $crate::clock::Stopwatch::start();
        let providers = $crate::allocations::Whose::providers();
        // SAFETY: the arguments are what acm_prov.h asks for. What the provider does with them is what is being tested.
        let result = unsafe { callback($($argument),*) };
        drop(providers);
        $core.shared.callback_over(stringify!($slot), &watch);
        let recorder = &$core.shared.recorder;
        recorder.end($crate::recorder::Caller::Core, stringify!($slot), || format!("{result:?}"));
        result
    }};
}

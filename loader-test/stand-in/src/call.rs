//! Calls the provider's callbacks.

/// Calls a slot of the provider's table, and records and traces the call with its arguments. The slot must not be NULL.
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
        // SAFETY: the arguments are as acm_prov.h requires. The provider's use of them is under test.
        let result = unsafe { callback($($argument),*) };
        drop(providers);
        $core.shared.callback_over(stringify!($slot), &watch);
        let recorder = &$core.shared.recorder;
        recorder.end($crate::recorder::Caller::Core, stringify!($slot), || format!("{result:?}"));
        result
    }};
}

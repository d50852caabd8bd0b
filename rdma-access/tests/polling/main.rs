//! A completion queue whose polling fails, and the error about its device. It needs its own process, because
//! failures on demand apply to the whole process.
//!
//! The executable links fabric-sim, whose `ibv_*` functions replace libibverbs'.

use std::ffi::c_int;
use std::sync::Arc;

use fabric_sim::fabric;
use fabric_sim::model::adapter::{Adapter, Identity};
use fabric_sim::model::port::PortSnapshot;
use fabric_sim::verbs::fault;
use ibverbs_sys::{ibv_context, ibv_cq, ibv_wc};
use rdma_access::ud::CompletionQueue;
use rdma_access::verbs::Context;

unsafe extern "C" fn broken(_queue: *mut ibv_cq, _count: c_int, _into: *mut ibv_wc) -> c_int {
    -1
}

#[test]
fn whether_the_device_answers_is_asked_where_a_queue_cannot_be_polled() {
    let identity = Identity {
        name: "sim0".to_owned(),
        ..Identity::default()
    };
    fabric::install(vec![Adapter::new(identity, vec![PortSnapshot::down()])]);
    let context = Arc::new(Context::open_by_name("sim0").unwrap());
    let queue = CompletionQueue::new(&context, 4, None).unwrap();
    let mut completions = Vec::new();
    assert_eq!(queue.poll(&mut completions).unwrap(), 0);
    // SAFETY: the context is open, and only this test uses its table.
    unsafe { (*context.as_ptr().cast::<ibv_context>()).ops.poll_cq = Some(broken) };

    let text = queue.poll(&mut completions).unwrap_err().to_string();
    assert!(text.contains("only the queue is broken"), "{text}");
    assert!(!text.contains("does not answer either"), "{text}");

    fault::fail_call(0);
    let text = queue.poll(&mut completions).unwrap_err().to_string();
    assert_eq!(fault::stop(), ["ibv_query_device"]);
    assert!(
        text.contains("does not answer either: ibv_query_device(sim0): "),
        "{text}"
    );
    assert!(!text.contains("only the queue"), "{text}");
}

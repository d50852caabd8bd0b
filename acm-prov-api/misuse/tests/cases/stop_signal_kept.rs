//! A stop signal is the thread's: it is borrowed for as long as the thread runs.
use acm_prov_api::sync::Mutex;
use acm_prov_api::{PortHandle, StopSignal};

static SIGNALS: Mutex<Vec<&StopSignal>> = Mutex::new(Vec::new());

fn start(port: &PortHandle) {
    let _ = port.spawn("keeper", |signal| SIGNALS.lock().push(signal));
}

fn main() {}

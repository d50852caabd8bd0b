//! The thread that ends expired MADs. It lives while MADs are outstanding.

use std::time::Duration;

use super::{Queue, Table, call_done};
use crate::clock::Moment;
use crate::sync::thread::Builder;

impl Queue {
    /// Starts the thread unless it runs. False: it could not be started.
    pub(super) fn watch(&'static self, table: &mut Table) -> bool {
        if !table.is_watched {
            let thread = Builder::new().name("sa-deadlines".into());
            table.wakes_at = Moment::NEVER;
            table.is_watched = thread.spawn(|| self.keep_deadlines()).is_ok();
        }
        table.is_watched
    }

    /// Ends expired MADs. Returns at a turn without outstanding MADs.
    fn keep_deadlines(&self) {
        let mut table = self.table.lock();
        loop {
            let now = Moment::now();
            let (ended, ports) = table.mads().take_due(now);
            if !ports.is_empty() || !ended.is_empty() {
                drop(table);
                call_done(ended);
                for port in ports {
                    self.hand_over(port, self.next_to_hand_over(port));
                }
                table = self.table.lock();
                continue;
            }
            if table.wakes_at <= now {
                table.wakes_at = Moment::NEVER;
                if !table.mads().is_any_waited_for() {
                    table.is_watched = false;
                    return;
                }
            }
            if let Some(first) = table.mads().next_deadline() {
                table.wakes_at = table.wakes_at.min(first);
            }
            match table.wakes_at {
                Moment::NEVER => self.changed.wait(&mut table),
                at => {
                    let wait = Duration::from_millis(at.since(now));
                    self.changed.wait_for(&mut table, wait);
                }
            }
        }
    }
}

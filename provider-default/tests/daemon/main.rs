//! mcast-sa under the real daemon, with a real OpenSM on a simulated fabric, beside the stock provider and path-cache.
//!
//! Every answer is compared with what the SA says, field by field. Where the stock provider fails, that is shown beside.

mod changes;
mod counters;
mod files;
mod loss;
mod mixed;
mod partitions;
mod support;

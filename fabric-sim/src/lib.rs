//! A simulated InfiniBand adapter.

//! Runs ibacm providers under the real daemon.

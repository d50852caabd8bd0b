//! Tests with the real daemon: rigs, and the command `loader-test stock`, with stock's provider, a good one and bad ones.

mod cleanup;
mod examples;
mod fabric;
mod namespace;
mod processes;
mod providers;
mod sa_of_the_stand_in;
mod stock;

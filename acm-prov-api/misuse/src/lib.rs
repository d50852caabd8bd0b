//! Programs against acm-prov-api that must not compile: see `tests/cases`.

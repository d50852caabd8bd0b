//! Programs that misuse acm-prov-api and must not compile: see `tests/cases`.

//! What a query names, and which records answer it.

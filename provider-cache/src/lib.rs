//! `path-cache`: an ibacm provider that answers from a bounded cache of SA paths.

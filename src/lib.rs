//! bareverbs

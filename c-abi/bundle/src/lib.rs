//! Makes the shared libraries that RDMA programs load out of the static library of `bareverbs-c`.
//!
//! ```text
//! cargo run -p bareverbs-bundle --bin bundle
//! target/bundle/bareverbs-run ibv_devinfo
//! ```
//!
//! The folder has `libibverbs.so.1`, and `librdmacm.so.1`, `libmlx5.so.1` and `libefa.so.1`, which are symbolic links
//! to it: one file, so that the loader maps it once and its state is shared. `bareverbs-run` beside them puts the
//! folder into `LD_LIBRARY_PATH` and runs a program.
//!
//! Programs are linked so that each function that they name has to exist when they start, with its version. The table
//! in `c-abi/symbols/symbols.tsv` ([`Symbol`]) has every symbol and version that Debian's libraries have. What the
//! static library defines is exported with the version from the table; what it does not define is made here, as a
//! function that refuses: it returns `EOPNOTSUPP` as its documentation says errors are returned ([`Returns`]).
//!
//! A Rust `cdylib` does not do: rustc passes a version script of its own, without versions, and the linker takes only
//! one.

mod build;
mod command;
mod copyright;
mod debug_symbols;
pub mod hang_up;
mod impairment;
mod library;
mod package;
mod refused;
pub mod switch;
mod symbols;
pub mod tree;

pub use build::{Kept, build};
pub use impairment::{Impairment, impairment};
pub use library::{Bundle, Sources, bundle};
pub use package::{INSTALLED, Packages, package};
pub use symbols::{Kind, Returns, Symbol, symbols};

/// The library that is a file; the others are symbolic links to it.
pub const LIBRARY: &str = "libibverbs.so.1";
/// The libraries that `LD_PRELOAD` names for programs that bring their own.
pub const LIBRARIES: [&str; 3] = [LIBRARY, "librdmacm.so.1", "libmlx5.so.1"];
/// The list of what valgrind finds in the library that is no error.
pub const SUPPRESSIONS: &str = "valgrind.supp";
/// The library that `LD_PRELOAD` names, for programs that look for devices elsewhere than in libibverbs.
pub const PATHS_LIBRARY: &str = "libbareverbs_paths.so";
/// The library that `LD_PRELOAD` names besides, for programs whose sockets are to be rsockets.
pub const SOCKETS_LIBRARY: &str = "libbareverbs_sockets.so";
/// The library that `LD_PRELOAD` names in place of these, for programs that use rdma-core's own libibverbs.
pub const UVERBS_LIBRARY: &str = "libbareverbs_uverbs.so";
/// The functions that these libraries and the runner call in the other one, and their version.
pub const PRIVATE: (&[&str], &str) = (
    &["bareverbs_addresses", "bareverbs_hang_up"],
    "BAREVERBS_PRIVATE",
);
/// The program beside the libraries that runs others with them.
pub const RUNNER: &str = "bareverbs-run";

//! Runs the bareverbs driver on ConnectX models in the same process: no hardware, no root, no daemon.
//!
//! A [`World`] holds one or more functions ([`connectx_model::Model`]), the host memory that each of them reaches, and the
//! cable between their ports. [`World::platform`] gives the driver its seam to one function. A world runs in one of two
//! ways:
//!
//! * **stepped** ([`Builder::stepped`]): time is virtual and only moves when the driver waits
//!   ([`Platform::relax`](bareverbs_core::platform::Platform::relax)) or a test calls [`World::step`]. The same calls give
//!   the same run, always; hours of retries pass at once. For tests.
//! * **threaded** ([`Builder::threaded`]): a thread plays the device on the real clock, as a card would. For examples.

mod backoff;
mod exit;
mod function;
mod gone_memory;
mod memory;
mod network;
mod pass_on;
mod platform;
mod port;
mod shared;
mod shared_memory;
pub mod subnet;
mod tapped;
mod uncancelled;
mod world;
mod write_combining;

pub use function::keep_device_memory_in;
pub use gone_memory::survive_gone_memory;
pub use memory::Accounting;
pub use network::Wire;
pub use platform::ModelPlatform;
pub use tapped::{Call, Tap, Tapped};
pub use world::{Builder, World, bring_up};
pub use write_combining::WriteCombining;

/// The names that [`pass_on`] needs.
#[doc(hidden)]
pub use bareverbs_core::platform as seam;

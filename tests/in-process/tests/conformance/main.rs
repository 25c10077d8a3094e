//! The conformance test of the platform seam: the platform on the model passes it, and one that breaks a requirement does not.

mod broken;
mod combining;
#[path = "../../helpers/keep.rs"]
mod keep;
mod passes;
mod violations;

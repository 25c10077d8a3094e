//! The conformance test of the platform seam: the platform on the model passes it, and one that breaks a duty does not.

mod breaches;
mod broken;
mod combining;
mod passes;

//! Two transports against each other, over links that behave and links that do not.

mod datagrams;
mod errors;
mod forged;
mod loss;
mod mock;
mod operations;
mod protocol;
mod xrc;

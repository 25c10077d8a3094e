//! A rule that says which frames come to a raw packet QP.

use std::cell::RefCell;
use std::rc::Rc;

use bareverbs_node::DevicePlatform as P;
use bareverbs_node::verbs::{FlowError, FlowRule, FlowTable};

use crate::attrs::{Result, refused};

/// The rules of the port, which all contexts share.
pub(crate) type Rules<'d> = Rc<RefCell<FlowTable<'d, 'static, P>>>;

/// A rule, and the handle of the QP that it sends frames to.
pub(crate) struct Flow<'d> {
    pub(crate) rules: Rules<'d>,
    /// There until it is taken away.
    pub(crate) rule: Option<FlowRule>,
    pub(crate) qp: u32,
    /// The handle of the matcher that it is of, if it is of one.
    pub(crate) matcher: Option<u32>,
}

impl Flow<'_> {
    pub(crate) fn destroy(&mut self) -> Result<()> {
        let Some(rule) = self.rule.take() else {
            return Ok(());
        };
        let gone = self.rules.borrow_mut().try_remove(rule);
        gone.map_err(|(rule, error)| {
            self.rule = Some(rule);
            unruled(error)
        })
    }
}

/// An error number for a rule that was not made or does not go.
pub(crate) fn unruled(error: FlowError) -> i32 {
    match error {
        FlowError::Command(error) => refused(error),
        FlowError::Unsupported { .. } | FlowError::Field { .. } => libc::EOPNOTSUPP,
        FlowError::Priority { .. } => libc::ENOMEM,
        FlowError::Full => libc::ENOSPC,
        _ => libc::EINVAL,
    }
}

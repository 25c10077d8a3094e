//! The rules of a device that say which frames come to raw packet QPs, and the domains of their contexts.

use std::sync::{Mutex, OnceLock};

use bareverbs_node::verbs::{
    Device, EthernetDomain, EthernetError, FlowAttr, FlowError, FlowRule, FlowSlot, FlowTable,
    RawPacketError, Tirn,
};

use crate::process::failure::{Errno, Result, lock};
use crate::process::kept::{P, slots};

/// Priorities of rules: sixteen, as with Linux's driver, and two for the default types.
const PRIORITIES: u8 = 16 + 2;
/// Room for rules at each of them, of which half can be used whatever they look at.
const AT_EACH: usize = 1024;

type Rules = FlowTable<'static, 'static, P>;

/// State that the raw packet QPs of a context share.
#[derive(Default)]
pub(crate) struct Frames {
    domain: OnceLock<EthernetDomain<'static, P>>,
}

impl Frames {
    pub(crate) fn domain(
        &self,
        device: &'static Device<'static, P>,
    ) -> Result<&EthernetDomain<'static, P>> {
        if let Some(domain) = self.domain.get() {
            return Ok(domain);
        }
        let made = device.alloc_ethernet_domain()?;
        // Another thread may have been quicker; then this one goes.
        Ok(self.domain.get_or_init(|| made))
    }
}

/// State that the raw packet QPs of a device share.
#[derive(Default)]
pub(crate) struct Raw {
    rules: Mutex<Option<Rules>>,
}

impl Raw {
    pub(crate) fn add(
        &self,
        domain: &EthernetDomain<'static, P>,
        target: Tirn,
        attr: &FlowAttr<'_>,
    ) -> Result<FlowRule> {
        let mut rules = lock(&self.rules);
        let rules = match &mut *rules {
            Some(rules) => rules,
            none => {
                let room = slots(usize::from(PRIORITIES) * AT_EACH, FlowSlot::new)?;
                none.insert(domain.create_flow_table(room, PRIORITIES)?)
            }
        };
        Ok(rules.create_flow(target, attr)?)
    }

    /// The process ends: takes all rules away, unless a thread was ended in a call for them.
    pub(crate) fn end(&self) {
        if let Ok(mut rules) = self.rules.try_lock() {
            drop(rules.take());
        }
    }

    /// Takes a rule away; gives it back if it holds on.
    pub(crate) fn remove(&self, rule: FlowRule) -> std::result::Result<(), (FlowRule, Errno)> {
        match &mut *lock(&self.rules) {
            Some(rules) => rules
                .try_remove(rule)
                .map_err(|(rule, error)| (rule, error.into())),
            None => Err((rule, Errno::EINVAL)),
        }
    }
}

impl From<EthernetError> for Errno {
    fn from(error: EthernetError) -> Self {
        log::debug!("{error}");
        match error {
            EthernetError::NotEthernet | EthernetError::Unsupported { .. } => Self::EOPNOTSUPP,
            EthernetError::Busy => Self::EBUSY,
            EthernetError::Memory(_) => Self::ENOMEM,
            EthernetError::Command(error) => error.into(),
            _ => Self::EINVAL,
        }
    }
}

impl From<RawPacketError> for Errno {
    fn from(error: RawPacketError) -> Self {
        match error {
            RawPacketError::Create(error) => error.into(),
            RawPacketError::Ethernet(error) => error.into(),
            _ => Self::EINVAL,
        }
    }
}

impl From<FlowError> for Errno {
    fn from(error: FlowError) -> Self {
        log::debug!("{error}");
        match error {
            FlowError::Unsupported { .. } | FlowError::Field { .. } => Self::EOPNOTSUPP,
            FlowError::Full => Self::ENOMEM,
            FlowError::Command(error) => error.into(),
            _ => Self::EINVAL,
        }
    }
}

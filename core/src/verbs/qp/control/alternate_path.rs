//! Alternate paths of connections, which InfiniBand ports have.
//!
//! Source: IBTA vol. 1, 17.2.8 (automatic path migration), and what Linux's mlx5 driver gives the firmware for it.

use bareverbs_firmware_cmds::qp::Qpc;
use bareverbs_firmware_cmds::values::PathMigration;

use crate::platform::Platform;
use crate::verbs::qp::control::attr::{PathMigState, QpAttr};
use crate::verbs::qp::control::modify::ModifyError;
use crate::verbs::qp::control::object::QpObject;
use crate::verbs::qp::control::states::QpAttrMask;

/// The largest LID of a port; those behind it are of groups.
const LAST_LID: u16 = 0xbfff;

impl<P: Platform> QpObject<'_, P> {
    /// Checks what is asked for of path migration before anything goes to the firmware.
    pub(in crate::verbs::qp) fn check_alternate(
        &self,
        attr: &QpAttr,
        mask: QpAttrMask,
        pkeys: u32,
    ) -> Result<(), ModifyError> {
        let asked = mask & (QpAttrMask::ALT_PATH | QpAttrMask::PATH_MIG_STATE);
        if asked.is_empty() {
            return Ok(());
        }
        let capabilities = self.device.capabilities();
        // A connection without an alternate path is in this state all the time.
        let stays =
            asked == QpAttrMask::PATH_MIG_STATE && attr.path_mig_state == PathMigState::Migrated;
        if !capabilities.has_alternate_paths() && !stays {
            return Err(ModifyError::Unsupported { attribute: asked });
        }
        let ranges = [
            (
                QpAttrMask::PATH_MIG_STATE,
                attr.path_mig_state as u32,
                0..=PathMigState::Rearm as u32,
            ),
            (QpAttrMask::ALT_PATH, attr.alt_timeout.into(), 0..=31),
            (
                QpAttrMask::ALT_PATH,
                attr.alt_pkey_index.into(),
                0..=pkeys - 1,
            ),
            (
                QpAttrMask::ALT_PATH,
                attr.alt_port_num.into(),
                1..=capabilities.hca.num_ports().max(1).into(),
            ),
            (
                QpAttrMask::ALT_PATH,
                attr.alt_ah_attr.dlid.into(),
                1..=LAST_LID.into(),
            ),
        ];
        for (attribute, value, range) in ranges {
            if mask.contains(attribute) && !range.contains(&value) {
                return Err(ModifyError::Value {
                    attribute,
                    value,
                    limit: *range.end(),
                });
            }
        }
        Ok(())
    }

    /// Fills in what the context says of it.
    pub(in crate::verbs::qp) fn describe_alternate(
        &self,
        qpc: &mut Qpc,
        attr: &QpAttr,
        mask: QpAttrMask,
    ) -> Result<(), ModifyError> {
        if mask.contains(QpAttrMask::PATH_MIG_STATE) && attr.path_mig_state == PathMigState::Rearm {
            qpc.set_pm_state(PathMigration::Rearm.number());
        }
        if mask.contains(QpAttrMask::ALT_PATH) {
            let path = qpc.secondary_address_path_mut();
            self.path(path, &attr.alt_ah_attr, attr.dest_qp_num)
                .map_err(ModifyError::Path)?;
            path.set_vhca_port_num(attr.alt_port_num)
                .set_pkey_index(attr.alt_pkey_index)
                .set_ack_timeout(attr.alt_timeout);
        }
        Ok(())
    }
}

impl PathMigState {
    /// From `qpc.pm_state`.
    pub(in crate::verbs::qp) fn from_qpc(state: u8) -> Self {
        match PathMigration::from_number(state) {
            Some(PathMigration::Armed) => Self::Armed,
            Some(PathMigration::Rearm) => Self::Rearm,
            _ => Self::Migrated,
        }
    }
}

//! libvirt's states of a domain as power states.

use virt::domain::{Domain, DomainPausedReason, DomainShutoffReason, DomainState, DomainStateReason};
use virt::enumutil::Enum;

use super::domain::TaggedDomain;
use crate::backend::{BackendError, Power};

pub(super) fn power_of(domain: &Domain, tagged: &TaggedDomain) -> Result<Power, BackendError> {
    let (state, reason) = domain.state()?;
    let reason = match reason {
        Enum::Known(reason) => Some(reason),
        Enum::Unknown(_) => None,
    };
    Ok(read_power(state.known(), reason, tagged.is_kvm))
}

fn read_power(state: Option<DomainState>, reason: Option<DomainStateReason>, is_kvm: bool) -> Power {
    match (state, reason) {
        // A guest that has powered off is being shut down until its emulator has written its disks and ended
        // (libvirt/libvirt: include/libvirt/libvirt-domain.h, `VIR_DOMAIN_SHUTDOWN`); it cannot be started before.
        (Some(DomainState::Running | DomainState::Blocked | DomainState::Shutdown), _) => Power::Running,
        (Some(DomainState::Paused), Some(DomainStateReason::Paused(reason))) => read_pause(reason.known(), is_kvm),
        (Some(DomainState::PMSuspended), _) => Power::Paused("the guest is suspended".to_owned()),
        (Some(DomainState::Shutoff), Some(DomainStateReason::Shutoff(reason))) => match reason.known() {
            Some(DomainShutoffReason::Crashed) => Power::Broken("the emulator crashed".to_owned()),
            Some(DomainShutoffReason::Failed) => Power::Broken("the start failed".to_owned()),
            _ => Power::Off,
        },
        (Some(DomainState::Crashed), _) => Power::Broken("the guest panicked".to_owned()),
        (Some(DomainState::Shutoff), _) => Power::Off,
        _ => Power::Building,
    }
}

fn read_pause(reason: Option<DomainPausedReason>, is_kvm: bool) -> Power {
    let message = match reason {
        Some(DomainPausedReason::StartingUp) => return Power::Building,
        Some(DomainPausedReason::User) => "paused by a user",
        Some(DomainPausedReason::IOError) => "I/O error; the pool may be full",
        Some(DomainPausedReason::Watchdog) => "the watchdog triggered",
        Some(DomainPausedReason::Crashed) => "the guest panicked",
        Some(
            DomainPausedReason::Migration
            | DomainPausedReason::Save
            | DomainPausedReason::Dump
            | DomainPausedReason::Snapshot
            | DomainPausedReason::FromSnapshot,
        ) => "being saved, copied or migrated",
        // QEMU pauses a guest like this if the accelerator fails.
        _ if is_kvm => "KVM does not work on this host: set libvirt_virt_type=qemu",
        _ => "stopped by the emulator",
    };
    Power::Paused(message.to_owned())
}

#[cfg(test)]
mod tests {
    use virt::domain::{DomainPausedReasonEnum, DomainShutoffReasonEnum};

    use super::*;

    #[test]
    fn each_state_has_a_meaning() {
        let paused = |reason, is_kvm| {
            let reason = DomainStateReason::Paused(DomainPausedReasonEnum::Known(reason));
            read_power(Some(DomainState::Paused), Some(reason), is_kvm)
        };
        for reason in [DomainPausedReason::Unknown, DomainPausedReason::APIError] {
            assert!(
                matches!(paused(reason, true), Power::Paused(message) if message.contains("libvirt_virt_type=qemu"))
            );
            assert!(matches!(paused(reason, false), Power::Paused(message) if !message.contains("KVM")));
        }
        assert_eq!(paused(DomainPausedReason::StartingUp, true), Power::Building);
        assert!(
            matches!(paused(DomainPausedReason::User, true), Power::Paused(message) if message == "paused by a user")
        );
        let crashed = DomainStateReason::Shutoff(DomainShutoffReasonEnum::Known(DomainShutoffReason::Crashed));
        assert!(matches!(
            read_power(Some(DomainState::Shutoff), Some(crashed), true),
            Power::Broken(_)
        ));
        assert_eq!(read_power(None, None, true), Power::Building);
        assert_eq!(read_power(Some(DomainState::Shutdown), None, true), Power::Running);
        assert_eq!(read_power(Some(DomainState::Shutoff), None, true), Power::Off);
    }
}

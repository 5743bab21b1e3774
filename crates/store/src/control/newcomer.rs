//! A drive comes to a store that runs.

use std::sync::Arc;

use forebay_engine::Membership;
use forebay_media::{DriveFile, Media};
use forebay_types::{DriveNumber, DriveUuid};

use super::{ControlThread, DriveStatus};
use crate::runner::Message;

impl ControlThread {
    /// Puts a new drive in. When it does not become a member nobody keeps it, and the same may be tried again.
    pub(super) fn add_drive(&mut self, uuid: DriveUuid, file: DriveFile, slots: u32) -> Result<DriveNumber, String> {
        let control = self.control.as_mut().expect("looked at by whoever calls");
        let bytes = file.bytes();
        let number = control.add_drive(uuid, slots, bytes)?;
        let file = Arc::new(file);
        if let Err(error) = self.media.add_drive(number, file.clone()) {
            tracing::error!(drive = %number, %error, "a new drive cannot be reached: it is not taken in");
        }
        self.newcomer = Some((number, file.clone()));
        self.run_operations();
        let joined = self.control.as_ref().and_then(|control| control.has_joined(number));
        if joined != Some(true) {
            if joined == Some(false) {
                self.newcomer = None;
                self.media.remove_drive(number);
            }
            return Err("the new drive did not take its superblock: it is not a member, and nothing was stored on it. See to it, and try it again \
                        or name another one"
                .to_owned());
        }
        let drive = DriveStatus {
            number: number.0,
            uuid,
            path: Some(file.path().display().to_string()),
            state: "member",
            bytes,
            slots,
            reason: None,
            replaced_by: None,
            identity: Some(file.identity().clone()),
        };
        self.update(|status| status.drives.push(drive));
        Ok(number)
    }

    /// Tells every lane who is a member; of a new one, where it is, before that.
    pub(super) fn tell_lanes(&mut self, membership: Membership) {
        let Membership::Drives(drives) = &membership else { return self.send(&Message::Membership(membership)) };
        let has_joined = |(number, _): &mut (DriveNumber, _)| drives.iter().any(|drive| drive.number == *number);
        if let Some((number, file)) = self.newcomer.take_if(has_joined) {
            self.send(&Message::Drive(number, file));
        }
        self.send(&Message::Membership(membership));
    }

    fn send(&self, message: &Message) {
        self.mailboxes.iter().for_each(|mailbox| mailbox.send(message.clone()));
    }
}

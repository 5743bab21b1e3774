//! A server that loses drives, as writers meet it: on loopback.

use std::path::Path;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use forebay_client::{ChangeDrive, Client, DriveChange};
use forebay_types::DriveNumber;

use super::{FRAGMENT_BYTES, Rebuilt, Store};
use crate::process::{Drives, Server};
use crate::requests::{delete_all, payload, put_all, status};

const CACHE_BYTES: u64 = 256 << 20;
const POLL: Duration = Duration::from_millis(5);

pub(super) struct ServedStore {
    writer: Client,
    operator: Client,
    payload: Bytes,
    _server: Server,
    drives: Drives,
}

impl ServedStore {
    pub(super) fn new(directory: &Path, drive_bytes: u64) -> Self {
        let drives = Drives::new(directory, drive_bytes, 1);
        let server = drives.serve(CACHE_BYTES);
        let (writer, operator) = (server.client(), server.client());
        ServedStore { writer, operator, payload: payload(FRAGMENT_BYTES as usize), _server: server, drives }
    }
}

impl Store for ServedStore {
    fn put(&mut self, run: u32, count: u64) {
        put_all(&mut self.writer, run, count, &self.payload);
    }

    fn delete(&mut self, run: u32, count: u64) {
        delete_all(&mut self.writer, run, count);
    }

    fn replace(&mut self, drive: u16) {
        let path = self.drives.further(&format!("instead-of-{drive}"));
        let path = path.to_str().expect("a path of this benchmark is text").to_owned();
        let drive = DriveNumber(drive);
        for change in [DriveChange::Fail { force: false }, DriveChange::Replace { path, force: false }] {
            self.operator.change_drive(ChangeDrive { drive, change }).expect("the server does it");
        }
        loop {
            let replacement = status(&mut self.operator)["replacement"].take();
            assert_ne!(replacement["state"], "failed", "{replacement}");
            if replacement["state"] == "done" && replacement["drive"] == drive.0 {
                return;
            }
            thread::sleep(POLL);
        }
    }

    fn rebuilt(&mut self) -> Rebuilt {
        let rebuild = status(&mut self.operator)["lanes"][0]["rebuild"].take();
        let number = |name: &str| rebuild[name].as_u64().expect("lanes say it");
        Rebuilt { bytes: number("bytes_read") + number("bytes_written"), is_whole: rebuild["is_whole"] == true }
    }

    fn wait(&mut self) {
        thread::sleep(POLL);
    }
}

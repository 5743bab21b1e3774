//! What an operator does with the drives of a server that serves, and when a drive is in order again.

use std::fs;
use std::time::Duration;

use serde_json::Value;

use super::Totals;
use super::common::Server;
use super::common::load::Random;
use super::drives::{Drive, Drives};
use super::life::status;

/// The time between two looks at a rebuild.
const LOOK: Duration = Duration::from_millis(10);

fn drive_command(server: &Server, words: &[&str]) -> Value {
    let words: Vec<&str> = ["drive"].into_iter().chain(words.iter().copied()).chain(["--json"]).collect();
    server.run(&words).expect(0).json()
}

impl Drives {
    /// Changes drives, or not, and sees to it that all is whole, or not.
    pub fn operate(&mut self, server: &Server, random: &mut Random, totals: &mut Totals) {
        let out: Vec<usize> = (0..self.drives.len()).filter(|number| !self.drives[*number].member).collect();
        match random.below(100) {
            0..45 if self.is_short() => self.replace(server, Self::any(&out, random), random, totals),
            45..55 if !self.whole().is_empty() => {
                self.replace(server, Self::any(&self.whole(), random), random, totals);
            }
            _ => {}
        }
        if random.percent(40) {
            self.scrub(server, totals);
        }
        // What is not whole when the server dies goes on with the next one.
        if random.percent(60) {
            self.wait_until_whole(server, random, totals);
        }
        match random.below(100) {
            0..25 if self.may_lose_one() => self.give_up(server, random, totals),
            25..50 if self.may_go() => self.retire(server, random, totals),
            _ => {}
        }
        if random.percent(30) {
            self.wait_until_whole(server, random, totals);
        }
        totals.left_to_the_next += u64::from(drive_command(server, &["list"])["whole"] != true);
    }

    fn replace(&mut self, server: &Server, number: usize, random: &mut Random, totals: &mut Totals) {
        let path = self.directory.join(format!("drive{}", self.drives.len()));
        let (drive, place) = (number.to_string(), path.display().to_string());
        totals.put_in += 1;
        if random.percent(15) {
            // Nobody waits, and the server may die in the middle.
            drive_command(server, &["replace", &drive, &place, "--no-wait"]);
            self.joining = Some(path);
            return;
        }
        let told = drive_command(server, &["replace", &drive, &place]);
        assert_eq!(told["number"], self.drives.len(), "{told}");
        self.drives.push(Drive::at(path));
        // It is read as long as something lives on it.
        self.drives[number].member = false;
    }

    /// Takes in what became of a drive that was being put in when the server died.
    pub(super) fn see_what_joined(&mut self, known: usize) {
        let Some(path) = self.joining.take() else { return };
        if known > self.drives.len() {
            self.drives.push(Drive::at(path));
        } else {
            // It may not have been made yet.
            let _ = fs::remove_file(path);
        }
    }

    fn give_up(&mut self, server: &Server, random: &mut Random, totals: &mut Totals) {
        let number = Self::any(&self.whole(), random);
        drive_command(server, &["fail", &number.to_string()]);
        (self.drives[number].member, self.drives[number].missed) = (false, true);
        totals.given_up += 1;
    }

    fn retire(&mut self, server: &Server, random: &mut Random, totals: &mut Totals) {
        let number = Self::any(&self.whole(), random);
        drive_command(server, &["retire", &number.to_string()]);
        self.drives[number].member = false;
        totals.retired += 1;
    }

    /// Waits until everything lies on members, unless that needs another drive or space.
    fn wait_until_whole(&mut self, server: &Server, random: &mut Random, totals: &mut Totals) {
        let mut client = server.client("operator");
        while self.joining.is_none() {
            let status = status(&mut client);
            let rebuild = |lane: &Value| lane["rebuild"].clone();
            let lanes: Vec<Value> = status["lanes"].as_array().expect("a list").iter().map(rebuild).collect();
            assert!(lanes.iter().all(|lane| lane["segments_stuck"] == 0), "{}: {status}", self.describe());
            if drive_command(server, &["list"])["whole"] == true {
                return self.all_is_whole(random, totals);
            }
            if lanes.iter().any(|lane| lane["waits_for"].is_string()) {
                totals.not_whole += 1;
                return;
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Whatever was done to drives that are no members harms nobody any more, and they may be taken away.
    fn all_is_whole(&mut self, random: &mut Random, totals: &mut Totals) {
        totals.made_whole += 1;
        for drive in self.drives.iter_mut().filter(|drive| !drive.member) {
            (drive.missed, drive.damaged, drive.empty) = (false, false, true);
            if drive.away.is_none() && !drive.gone && random.percent(70) {
                fs::remove_file(&drive.path).expect("it was there");
                drive.gone = true;
            }
        }
    }

    /// Looks at everything: members are as they should be after that.
    fn scrub(&mut self, server: &Server, totals: &mut Totals) {
        let told = drive_command(server, &["scrub"]);
        assert_eq!((&told["flushes_not_mended"], &told["units_lost"]), (&0.into(), &0.into()), "{told}");
        totals.scrubs += 1;
        totals.flushes_mended += told["flushes_mended"].as_u64().expect("a number");
        for drive in self.drives.iter_mut().filter(|drive| drive.member) {
            drive.damaged = false;
        }
    }
}

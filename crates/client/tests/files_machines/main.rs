//! What decides about files: writing behind, reading ahead, the way along a path. No sockets and no clock: the tests are both.

mod read;
mod walk;
mod write;

use forebay_types::FileNumber;

const FILE: FileNumber = FileNumber(7);

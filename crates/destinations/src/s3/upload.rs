//! A file on its way into a bucket.

use bytes::Bytes;
use forebay_mover::custody::{Answer, Failure};
use forebay_mover::endpoint::{Content, Moved};
use forebay_mover::{Summer, Sums};
use md5::{Digest, Md5};
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use tokio::task::JoinHandle;

use super::marker::{PARTS_MAX, Sent};
use super::trouble::failure;
use crate::words::changed;

const MEBIBYTE: u64 = 1 << 20;
/// A part has so much at least, but for the last.
const PART_BYTES_MIN: u64 = 16 * MEBIBYTE;

/// So much goes into each part of a file of this size.
pub(super) fn part_bytes(bytes: u64) -> u64 {
    bytes.div_ceil(PARTS_MAX as u64).next_multiple_of(MEBIBYTE).max(PART_BYTES_MIN)
}

/// An upload, and what is known of its parts. One part is sent while the next is read: two are in memory.
pub(super) struct Parts<'a> {
    store: &'a AmazonS3,
    path: &'a Path,
    upload: &'a String,
    sending: Option<(JoinHandle<object_store::Result<PartId>>, [u8; 16])>,
    sent: Vec<(String, [u8; 16])>,
}

impl Drop for Parts<'_> {
    fn drop(&mut self) {
        if let Some((sending, _)) = &self.sending {
            sending.abort();
        }
    }
}

impl Parts<'_> {
    /// Sends all of it.
    pub(super) async fn send<'a>(
        (store, path, upload): (&'a AmazonS3, &'a Path, &'a String),
        bytes: u64,
        content: &mut dyn Content,
        moved: &dyn Moved,
    ) -> Result<Sent, Answer> {
        let mut parts = Parts { store, path, upload, sending: None, sent: Vec::new() };
        let sums = parts.feed(bytes, content, moved).await?;
        parts.finish_part().await.map_err(Answer::Failed)?;
        let etag = parts.etag().map_err(Answer::Failed)?;
        Ok(Sent::new(parts.sent.iter().map(|(etag, _)| etag.clone()).collect(), etag, sums))
    }

    async fn feed(&mut self, bytes: u64, content: &mut dyn Content, moved: &dyn Moved) -> Result<Sums, Answer> {
        let part_bytes = part_bytes(bytes) as usize;
        let (mut summer, mut fed_bytes, mut part) = (Summer::default(), 0, Vec::new());
        while let Some(mut block) = content.next_block().map_err(Answer::Source)? {
            let block_bytes = block.len() as u64;
            fed_bytes += block_bytes;
            if fed_bytes > bytes {
                return Err(Answer::Source(changed(bytes)));
            }
            summer.update(block);
            while !block.is_empty() {
                if part.is_empty() {
                    part.reserve_exact(part_bytes.min((bytes - fed_bytes) as usize + block.len()));
                }
                let (taken, rest) = block.split_at(block.len().min(part_bytes - part.len()));
                part.extend_from_slice(taken);
                block = rest;
                if part.len() == part_bytes {
                    self.begin_part(std::mem::take(&mut part)).await.map_err(Answer::Failed)?;
                }
            }
            if !moved.moved(block_bytes) {
                return Err(Answer::Failed(Failure::NotNow("the mover ends".to_owned())));
            }
        }
        if fed_bytes != bytes {
            return Err(Answer::Source(changed(bytes)));
        }
        // Of nothing there is one part, too: no upload is without any.
        if !part.is_empty() || bytes == 0 {
            self.begin_part(part).await.map_err(Answer::Failed)?;
        }
        Ok(summer.sums())
    }

    async fn begin_part(&mut self, part: Vec<u8>) -> Result<(), Failure> {
        self.finish_part().await?;
        let (store, path, upload) = (self.store.clone(), self.path.clone(), self.upload.clone());
        let (number, md5) = (self.sent.len(), Md5::digest(&part).into());
        let sending =
            tokio::spawn(async move { store.put_part(&path, &upload, number, Bytes::from(part).into()).await });
        self.sending = Some((sending, md5));
        Ok(())
    }

    async fn finish_part(&mut self) -> Result<(), Failure> {
        let Some((sending, md5)) = &mut self.sending else { return Ok(()) };
        let (sent, md5) = (sending.await, *md5);
        self.sending = None;
        let key = self.path.as_ref();
        let sent = sent.map_err(|error| Failure::Unknown(format!("send a part of {key}: {error}")))?;
        let part = sent.map_err(|error| failure("send a part of", key, &error))?;
        self.sent.push((part.content_id, md5));
        Ok(())
    }

    /// The ETag of the whole, where those of the parts are their MD5 sums. None of them is with some encryptions; if only some are, parts are not what was sent.
    fn etag(&self) -> Result<Option<String>, Failure> {
        let agree =
            self.sent.iter().filter(|(etag, md5)| etag.trim_matches('"').eq_ignore_ascii_case(&hex(md5))).count();
        match agree {
            0 => Ok(None),
            agree if agree == self.sent.len() => {
                let all: Vec<u8> = self.sent.iter().flat_map(|(_, md5)| *md5).collect();
                Ok(Some(format!("{}-{}", hex(&Md5::digest(&all).into()), self.sent.len())))
            }
            agree => Err(Failure::NotNow(format!(
                "{}: {agree} of {} parts have the checksum (MD5) that was sent, the others another; all of it is sent again",
                self.path,
                self.sent.len()
            ))),
        }
    }
}

fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_file_has_too_many_parts_or_too_small_ones() {
        for bytes in [0, 1, PART_BYTES_MIN, 160_000 * MEBIBYTE, 160_000 * MEBIBYTE + 1, 5 << 40] {
            let part_bytes = part_bytes(bytes);
            assert!(part_bytes >= PART_BYTES_MIN && bytes.div_ceil(part_bytes) <= PARTS_MAX as u64, "{bytes}");
        }
        assert_eq!(part_bytes(5 << 40), 525 * MEBIBYTE);
    }
}

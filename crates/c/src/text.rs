//! Texts that the library gives.

use std::ffi::{CString, c_char};
use std::mem::MaybeUninit;
use std::ptr;

use crate::call::{free, look};
use crate::failure::Failure;
use crate::raw::give_handle;

/// A text that the library gave: JSON, or the target of a link. `forebay_text_free` frees it.
pub struct forebay_text(CString);

/// The text, with a zero byte behind it; it is there until it is freed.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_text_data(text: Option<&forebay_text>) -> *const c_char {
    look(text, ptr::null(), |text| text.0.as_ptr())
}

/// How long it is, bytes, without the zero byte.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_text_bytes(text: Option<&forebay_text>) -> usize {
    look(text, 0, |text| text.0.as_bytes().len())
}

/// Frees it; null is nothing to free.
#[unsafe(no_mangle)]
pub extern "C" fn forebay_text_free(text: Option<Box<forebay_text>>) {
    free(text);
}

pub(crate) fn give_text(
    place: Option<&mut MaybeUninit<*mut forebay_text>>,
    make: impl FnOnce() -> Result<Vec<u8>, Failure>,
) -> Result<(), Failure> {
    give_handle(place, || {
        let text = CString::new(make()?).map_err(|_| Failure::internal("a text has a zero byte in it"))?;
        Ok(forebay_text(text))
    })
}

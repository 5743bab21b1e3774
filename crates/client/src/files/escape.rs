//! How names and paths, which are any bytes, are shown.

use std::fmt::Write;

/// A name or a path as text that says every byte of it: what is UTF-8 and can be printed stays, a backslash is doubled, and any other byte is `\xNN`.
///
/// ```
/// assert_eq!(forebay_client::files::escape(b"run 7\xff\n\\"), r"run 7\xff\x0a\\");
/// ```
pub fn escape(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    let byte = |text: &mut String, byte: u8| write!(text, "\\x{byte:02x}").expect("a string takes all");
    for chunk in name.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                other if other.is_control() => {
                    other.encode_utf8(&mut [0; 4]).bytes().for_each(|code| byte(&mut text, code));
                }
                other => text.push(other),
            }
        }
        chunk.invalid().iter().for_each(|code| byte(&mut text, *code));
    }
    text
}

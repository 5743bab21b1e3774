//! What the linker is told of the shared library.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // The name by which programs ask for it: another number is for an ABI that old programs cannot use.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libforebay.so.0");
    // Crates that it uses have functions for C, too, if somebody else in the same build wants them: these are not this library's.
    println!("cargo::rustc-cdylib-link-arg=-Wl,--exclude-libs,ALL");
}

//! Gives the shared library the name by which programs ask for it: another number is for an ABI that old programs cannot use.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libforebay.so.0");
}

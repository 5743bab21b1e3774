//! Links librados, where it is wanted.

fn main() {
    #[cfg(feature = "link")]
    println!("cargo::rustc-link-lib=rados");
}

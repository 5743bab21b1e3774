//! Compiles the shim, where it is wanted.

fn main() {
    #[cfg(feature = "link")]
    {
        println!("cargo::rerun-if-changed=src/shim.cc");
        println!("cargo::rustc-link-lib=XrdCl");
        // System headers: their warnings are not ours.
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .flag("-isystem/usr/include/xrootd")
            .flag("-D_FILE_OFFSET_BITS=64")
            .file("src/shim.cc")
            .compile("forebay_xrdcl");
    }
}

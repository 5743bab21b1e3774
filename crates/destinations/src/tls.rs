//! Who may vouch for a server.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::OpenError;

/// A file with certificates has no more of them.
const CERTIFICATES_MAX: usize = 10_000;

/// TLS with the certificates of the system, and those of a file.
pub(crate) fn config(ca_file: Option<&Path>) -> Result<ClientConfig, OpenError> {
    let mut roots = RootCertStore::empty();
    // What cannot be read there is none of ours; a server that nobody vouches for is refused.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    for certificate in ca_file.map(certificates).transpose()?.unwrap_or_default() {
        roots
            .add(certificate)
            .map_err(|error| OpenError::Access(format!("a certificate of the file for --ca-file: {error}")))?;
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| OpenError::Missing(format!("TLS: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The certificates of a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, OpenError> {
    let failed = |what: String| {
        OpenError::Access(format!("{}: {what}. Give a file with certificates (PEM) with --ca-file", path.display()))
    };
    let found = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
    let found: Vec<_> =
        found.take(CERTIFICATES_MAX).collect::<Result<_, _>>().map_err(|error| failed(error.to_string()))?;
    if found.is_empty() { Err(failed("it has no certificate".to_owned())) } else { Ok(found) }
}

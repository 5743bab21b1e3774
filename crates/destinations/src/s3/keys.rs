//! The keys of S3, from a file as `aws configure` writes it.

use std::fmt;
use std::sync::Arc;

use object_store::aws::AwsCredential;
use object_store::{CredentialProvider, Error, Result};

use crate::{OpenError, Secret};

/// Keys that are read again when their file changes.
pub(super) struct FileKeys(pub(super) Secret);

impl FileKeys {
    /// The keys as they stand there now.
    pub(super) fn get(&self) -> Result<AwsCredential, OpenError> {
        parse(&self.0.get()?).map_err(|what| {
            OpenError::Access(format!(
                "the file with the keys of S3: {what}. It has [default], and below it aws_access_key_id = .. and aws_secret_access_key = .."
            ))
        })
    }
}

impl fmt::Debug for FileKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[async_trait::async_trait]
impl CredentialProvider for FileKeys {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> Result<Arc<AwsCredential>> {
        let keys = self.get().map_err(|error| Error::Generic { store: "S3", source: Box::new(error) })?;
        Ok(Arc::new(keys))
    }
}

/// What stands below `[default]`.
fn parse(text: &str) -> Result<AwsCredential, &'static str> {
    let (mut key_id, mut secret_key, mut token) = (None, None, None);
    let mut is_default = false;
    for line in text.lines().map(str::trim).filter(|line| !line.starts_with(['#', ';'])) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            is_default = section.trim() == "default";
        } else if let Some((name, value)) = line.split_once('=').filter(|_| is_default) {
            let value = Some(value.trim().to_owned()).filter(|value| !value.is_empty());
            match name.trim() {
                "aws_access_key_id" => key_id = value,
                "aws_secret_access_key" => secret_key = value,
                "aws_session_token" => token = value,
                _ => {}
            }
        }
    }
    let key_id = key_id.ok_or("it has no aws_access_key_id for [default]")?;
    let secret_key = secret_key.ok_or("it has no aws_secret_access_key for [default]")?;
    let is_text = |text: &str| text.chars().all(|character| character.is_ascii_graphic());
    if !is_text(&key_id) || !is_text(&secret_key) || !token.as_deref().is_none_or(is_text) {
        return Err("a key has characters in it that no key has");
    }
    Ok(AwsCredential { key_id, secret_key, token })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_the_default() {
        let text = "# keys\n[other]\naws_access_key_id = no\n[default]\naws_access_key_id = ABC\nregion=x\n aws_secret_access_key=d/e+f=\n[more]\naws_session_token = no\n";
        let keys = parse(text).expect("keys");
        assert_eq!((keys.key_id.as_str(), keys.secret_key.as_str(), keys.token), ("ABC", "d/e+f=", None));
        let keys = parse("[default]\naws_access_key_id=a\naws_secret_access_key=b\naws_session_token=c").expect("keys");
        assert_eq!(keys.token.as_deref(), Some("c"));
        for text in [
            "",
            "[default]",
            "aws_access_key_id=a\naws_secret_access_key=b",
            "[default]\naws_access_key_id=a b\naws_secret_access_key=c",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}

//! What is told of runs and streams, and what is asked for, in the types of Python.

use std::collections::BTreeMap;

use forebay_types::limits::SOURCE_RANGES_MAX;
use forebay_types::{
    BlockRule, ParseSourcesError, ParseStreamError, SourceFragments, SourceId, SourceSet, StreamDefinition,
    StreamSources,
};
use pyo3::prelude::*;
use serde::Serialize;

use crate::client::parsed;
use crate::errors;

/// As the commands give it with `--json`.
pub fn object<'py>(py: Python<'py>, value: &impl Serialize) -> PyResult<Bound<'py, PyAny>> {
    let json = serde_json::to_string(value).map_err(|error| errors::value(error.to_string()))?;
    parsed(py, &json)
}

pub fn sources(text: &str) -> PyResult<SourceSet> {
    text.parse().map_err(|error: ParseSourcesError| errors::value(error.to_string()))
}

pub fn stream_sources(text: &str) -> PyResult<StreamSources> {
    text.parse().map_err(|error: ParseSourcesError| errors::value(error.to_string()))
}

pub fn fragments(counts: BTreeMap<u32, u64>) -> PyResult<Vec<SourceFragments>> {
    let counts = counts.into_iter().map(|(source, count)| (SourceId(source), count));
    SourceFragments::of_counts(counts).ok_or_else(|| {
        errors::value(format!(
            "the fragments by source have more than {SOURCE_RANGES_MAX} ranges of neighbouring sources with the same count, which is all that a run keeps"
        ))
    })
}

pub fn block(events: Option<u64>, seconds: Option<u64>) -> PyResult<BlockRule> {
    match (events, seconds) {
        (None, None) => Ok(BlockRule::Run),
        (Some(events), None) => Ok(BlockRule::Events(events)),
        (None, Some(seconds)) => Ok(BlockRule::Seconds(seconds)),
        (Some(_), Some(_)) => {
            Err(errors::value("a luminosity block ends by block_events or by block_s; give one".to_owned()))
        }
    }
}

pub fn checked(definition: StreamDefinition) -> PyResult<StreamDefinition> {
    definition.check().map_err(|error: ParseStreamError| errors::value(error.to_string()))?;
    Ok(definition)
}

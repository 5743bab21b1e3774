//! Files that become larger ones: which of them together, in which order, when, and under which name.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use forebay_types::{RunId, Time};

use super::plan::{Kind, Planned};
use crate::custody::{Part, Series};
use crate::name::Name;
use crate::planted::{Planted, planted};
use crate::recipe::{Form, Recipe};

/// A merged file has no more parts: their rows are written together, and their memory is about 200 bytes each.
const PARTS_MAX: usize = 50_000;

/// How files are merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merge {
    /// A file gets no larger, unless a single part is.
    pub bytes: u64,
    /// What does not come to so many bytes in this time is merged as it is; at once where what is there is moved once.
    pub wait: Duration,
    /// The names of merged files; `{directory}/run{run}-{sequence}.{extension}` where nothing else is said, and `files` for the run in those of archives.
    pub name: Option<Template>,
}

impl Merge {
    /// As text, for what stands for the settings of a route.
    pub(super) fn settings(&self) -> String {
        let name = self.name.as_ref().map_or("", |template| template.0.as_str());
        format!("{} bytes, {} s, {name:?}", self.bytes, self.wait.as_secs_f64())
    }
}

/// The name of a merged file, with `{directory}`, `{run}`, `{sequence}` and `{extension}` in it; of a file of events `{stream}` and `{block}`, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(String);

/// A text that is no template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is no template of names: {what}. It may have {{directory}}, {{run}}, {{extension}} and, for events, {{stream}} and {{block}} in it, and must have {{sequence}}"
)]
pub struct TemplateError {
    text: String,
    what: String,
}

/// What a template is filled with.
pub(super) struct Fields<'a> {
    pub(super) directory: &'a str,
    pub(super) run: &'a str,
    /// Of events alone.
    pub(super) block: &'a str,
    pub(super) sequence: &'a str,
    pub(super) extension: &'a str,
}

impl Default for Template {
    /// That of files of events.
    fn default() -> Template {
        Template("{directory}/run{run}-{sequence}.{extension}".to_owned())
    }
}

impl Template {
    /// That of files of events in runs of several luminosity blocks.
    pub(super) fn with_blocks() -> Template {
        Template("{directory}/run{run}-block{block}-{sequence}.{extension}".to_owned())
    }

    /// Whether only files of events can have such names.
    pub fn is_of_events(&self) -> bool {
        self.0.contains("{stream}") || self.0.contains("{block}")
    }

    pub(super) fn fill(&self, fields: &Fields) -> String {
        let known = [
            ("{directory}", fields.directory),
            ("{run}", fields.run),
            ("{stream}", fields.directory),
            ("{block}", fields.block),
            ("{sequence}", fields.sequence),
            ("{extension}", fields.extension),
        ];
        let (mut filled, mut rest) = (String::new(), self.0.as_str());
        // In one go: a directory may be called like a field.
        while let Some(next) = rest.chars().next() {
            match known.iter().find(|(field, _)| rest.starts_with(field)) {
                Some((field, with)) => {
                    filled.push_str(with);
                    rest = &rest[field.len()..];
                }
                None => {
                    filled.push(next);
                    rest = &rest[next.len_utf8()..];
                }
            }
        }
        // What is empty leaves no part of a name empty.
        let parts: Vec<&str> = filled.split('/').filter(|part| !part.is_empty()).collect();
        parts.join("/")
    }
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(text: &str) -> Result<Template, TemplateError> {
        let template = Template(text.to_owned());
        let refuse = |what| Err(TemplateError { text: text.chars().take(200).collect(), what });
        if !text.contains("{sequence}") {
            return refuse("two files would have one name".to_owned());
        }
        let filled = template.fill(&Fields { directory: "d", run: "1", block: "1", sequence: "1", extension: "e" });
        if filled.contains(['{', '}']) {
            return refuse("it has something else in braces".to_owned());
        }
        if let Err(error) = filled.parse::<Name>() {
            return refuse(error.to_string());
        }
        let at_the_top = template.fill(&Fields { directory: "", run: "1", block: "1", sequence: "1", extension: "e" });
        let mut parts = filled.split('/').chain(at_the_top.split('/'));
        if parts.any(|part| part.starts_with('.')) {
            return refuse("a name that begins with a dot is hidden".to_owned());
        }
        if [".copied", ".part", ".tmp", ".lock"].iter().any(|ending| filled.ends_with(ending)) {
            return refuse("a file with that ending is left alone wherever it is moved on from".to_owned());
        }
        Ok(template)
    }
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What may become one file: never of several directories, kinds or runs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Group {
    directory: String,
    /// What the names of its parts end in; nothing where these are put into an archive.
    extension: Option<String>,
    run: Option<RunId>,
    form: Form,
}

impl Group {
    /// Nothing for what is moved by itself.
    fn of(part: &Part, kind: Kind) -> Option<Group> {
        let directory = part.name.directory().unwrap_or_default().to_owned();
        Some(match (kind, part.name.file().rsplit_once('.')) {
            (Kind::Events { run, form }, Some((_, extension))) => {
                let run = if planted(Planted::RunsMixed) { RunId(0) } else { run };
                Group { directory, run: Some(run), extension: Some(extension.to_owned()), form }
            }
            (Kind::Unclear, _) => return None,
            (Kind::File | Kind::Events { .. }, _) => Group { directory, run: None, extension: None, form: Form::Tar },
        })
    }

    fn usual_template(&self) -> Template {
        let of_files = || Template("{directory}/files-{sequence}.{extension}".to_owned());
        self.run.map_or_else(of_files, |_| Template::default())
    }

    fn fill(&self, template: &Template, sequence: &str) -> String {
        let run = self.run.map_or("none".to_owned(), |run| format!("{:06}", run.0));
        let extension = self.extension.as_deref().unwrap_or("tar");
        template.fill(&Fields { directory: &self.directory, run: &run, block: "", sequence, extension })
    }
}

/// What of a source waits to be merged. All of it is seen with every look, so there is nothing to be kept.
#[derive(Debug)]
pub(super) struct Merging {
    merge: Merge,
    once: bool,
    /// Since when there is something of a group that does not make a file yet.
    waiting: BTreeMap<Group, Time>,
}

/// The names of a series differ in their numbers; these are the first that none has. Over all routes: two of them may lead to one place.
#[derive(Debug, Default)]
pub(super) struct Numbering(BTreeMap<String, Numbers>);

/// What was given of a series.
#[derive(Clone, Copy, Debug)]
struct Numbers {
    next: u64,
    /// The first that was given since somebody else's file was met last.
    since_met: u64,
    /// So many are left out when somebody else's file is met behind that.
    ahead: u64,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers { next: 1, since_met: 1, ahead: 1 }
    }
}

/// No more numbers are left out at once.
const AHEAD_MAX: u64 = 1 << 16;

impl Numbering {
    /// What the journal has.
    pub(super) fn go_on_with(&mut self, series: String, next: u64) {
        if !planted(Planted::SeriesForgotten) {
            let known = self.0.entry(series).or_default();
            known.next = next.max(known.next);
        }
    }

    /// The next name of a series that nothing has, and its number; nothing where it is none.
    pub(super) fn give(
        &mut self,
        series: &str,
        name_of: impl Fn(u64) -> Option<Name>,
        is_taken: &dyn Fn(&Name) -> bool,
    ) -> Option<(Name, u64)> {
        let next = &mut self.0.entry(series.to_owned()).or_default().next;
        loop {
            let (name, number) = (name_of(*next)?, *next);
            *next = next.checked_add(1)?;
            if !is_taken(&name) {
                return Some((name, number));
            }
        }
    }

    /// The same for a file whose name of this number somebody else's file has at a destination. Whoever met one may meet many, all that an earlier mover left there
    /// for one: so twice as many numbers are left out each time, and some twenty questions pass a million files.
    pub(super) fn give_another(
        &mut self,
        series: &str,
        met: u64,
        name_of: impl Fn(u64) -> Option<Name>,
        is_taken: &dyn Fn(&Name) -> bool,
    ) -> Option<(Name, u64)> {
        let numbers = self.0.entry(series.to_owned()).or_default();
        if met >= numbers.since_met {
            numbers.next = numbers.next.max(met.checked_add(1)?).checked_add(numbers.ahead - 1)?;
            (numbers.since_met, numbers.ahead) = (numbers.next, AHEAD_MAX.min(numbers.ahead * 2));
        }
        self.give(series, name_of, is_taken)
    }
}

/// What names files.
pub(super) struct Naming<'a> {
    pub(super) series: &'a mut Numbering,
    /// Whether something that is not over has a name at one of the destinations.
    pub(super) is_taken: &'a dyn Fn(&Name) -> bool,
}

impl Merging {
    pub(super) fn new(merge: Merge, once: bool) -> Merging {
        Merging { merge, once, waiting: BTreeMap::new() }
    }

    /// What becomes consignments, of all that is complete and in none.
    pub(super) fn merge(&mut self, complete: Vec<(Part, Kind)>, naming: &mut Naming, now: Time) -> Vec<Planned> {
        let (mut groups, mut planned): (BTreeMap<Group, Vec<Part>>, _) = (BTreeMap::new(), Vec::new());
        for (part, kind) in complete {
            match Group::of(&part, kind) {
                Some(group) => groups.entry(group).or_default().push(part),
                None => planned.push(Planned::as_it_is(part)),
            }
        }
        let before = std::mem::take(&mut self.waiting);
        for (group, mut parts) in groups {
            parts.sort_by(|a, b| a.name.cmp(&b.name));
            let since = before.get(&group).copied().unwrap_or(now);
            let waits_no_longer = self.once || now.since(since) >= self.merge.wait;
            for (parts, is_full) in split(parts, group.form, self.merge.bytes) {
                if is_full || waits_no_longer {
                    planned.extend(self.plan(&group, parts, naming));
                } else {
                    self.waiting.insert(group.clone(), since);
                }
            }
        }
        planned
    }

    fn plan(&self, group: &Group, parts: Vec<Part>, naming: &mut Naming) -> Vec<Planned> {
        let template = self.merge.name.clone().unwrap_or_else(|| group.usual_template());
        let series = group.fill(&template, "{sequence}");
        let name_of = |number: u64| group.fill(&template, &Series::digits(number)).parse::<Name>().ok();
        // Where a merged file's name is too long, its parts' names are not.
        let Some((name, number)) = naming.series.give(&series, name_of, naming.is_taken) else {
            return parts.into_iter().map(Planned::as_it_is).collect();
        };
        let recipe = Recipe::of_files(group.form, parts, None);
        let series = Some(Series { names: series, number });
        vec![Planned { name, recipe, series, content: None, terms: None, objection: None }]
    }
}

/// Files of at most so many bytes, in order, and whether another part would make each larger: the last one may not be full yet.
fn split(parts: Vec<Part>, form: Form, bytes_max: u64) -> Vec<(Vec<Part>, bool)> {
    let mut files: Vec<(Vec<Part>, bool)> = Vec::new();
    let mut bytes = 0u64;
    for part in parts {
        let of_part = form.bytes_of(&part);
        let with = bytes.saturating_add(of_part);
        match files.last_mut() {
            Some((file, _)) if with <= bytes_max && file.len() < PARTS_MAX => {
                file.push(part);
                bytes = with;
            }
            last => {
                if let Some((_, is_full)) = last {
                    *is_full = true;
                }
                bytes = of_part;
                files.push((vec![part], false));
            }
        }
    }
    if let Some((_, is_full)) = files.last_mut() {
        *is_full = bytes >= bytes_max;
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::custody::PartIdentity;

    fn part(name: &str, bytes: u64) -> Part {
        let identity = PartIdentity { bytes, modified_ns: 0, inode: 1 };
        Part { name: name.parse().expect("a name"), identity, changed_ns: 0 }
    }

    fn merging(bytes: u64, once: bool) -> Merging {
        Merging::new(Merge { bytes, wait: Duration::from_secs(60), name: None }, once)
    }

    fn naming(series: &mut Numbering) -> Naming<'_> {
        Naming { series, is_taken: &|name| name.as_str() == "files-00043.tar" }
    }

    fn names(planned: &[Planned]) -> Vec<(String, Form, Vec<&str>)> {
        let names =
            |planned: &Planned| planned.recipe.parts().iter().map(|part| part.name.as_str().to_owned()).collect();
        let of = |planned: &Planned| (planned.name.to_string(), planned.recipe.form, names(planned));
        let all: Vec<(String, Form, Vec<String>)> = planned.iter().map(of).collect();
        all.into_iter()
            .map(|(name, form, parts)| (name, form, parts.into_iter().map(|part| &*part.leak()).collect()))
            .collect()
    }

    #[test]
    fn what_is_merged_is_of_one_directory_kind_and_run_and_no_larger_than_it_may_be() {
        let events = |run| Kind::Events { run: RunId(run), form: Form::Concatenated };
        let complete = vec![
            (part("run7/c.raw", 40), events(7)),
            (part("run7/a.raw", 40), events(7)),
            (part("run7/b.raw", 20), events(7)),
            (part("run7/d.raw", 10), events(8)),
            (part("run7/notes", 10), Kind::File),
            (part("run7/a.json", 10), Kind::File),
            (part("run7/large", 1000), Kind::File),
            (part("x.mdf", 10), events(7)),
            (part("broken.raw", 10), Kind::Unclear),
        ];
        let planned = merging(60, true).merge(complete, &mut naming(&mut Numbering::default()), Time(0));
        let (concatenated, tar) = (Form::Concatenated, Form::Tar);
        let expected = [
            ("broken.raw", concatenated, vec!["broken.raw"]),
            ("run000007-00001.mdf", concatenated, vec!["x.mdf"]),
            ("run7/files-00001.tar", tar, vec!["run7/a.json"]),
            ("run7/files-00002.tar", tar, vec!["run7/large"]),
            ("run7/files-00003.tar", tar, vec!["run7/notes"]),
            ("run7/run000007-00001.raw", concatenated, vec!["run7/a.raw", "run7/b.raw"]),
            ("run7/run000007-00002.raw", concatenated, vec!["run7/c.raw"]),
            ("run7/run000008-00001.raw", concatenated, vec!["run7/d.raw"]),
        ];
        assert_eq!(names(&planned), expected.map(|(name, form, parts)| (name.to_owned(), form, parts)));
        let series = Series { names: "run7/run000007-{sequence}.raw".to_owned(), number: 2 };
        assert_eq!(planned[6].series, Some(series));
    }

    #[test]
    fn what_is_not_full_waits_and_numbers_go_on() {
        let (mut merging, mut series) = (merging(2000, false), Numbering::default());
        series.go_on_with("files-{sequence}.tar".to_owned(), 42);
        let small = || vec![(part("a", 60), Kind::File)];
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        assert!(merging.merge(small(), &mut naming(&mut series), at(10)).is_empty());
        assert!(merging.merge(small(), &mut naming(&mut series), at(69)).is_empty());
        assert_eq!(merging.merge(small(), &mut naming(&mut series), at(70))[0].name.as_str(), "files-00042.tar");
        // Planned: the wait for what comes begins anew.
        let next = || vec![(part("b", 60), Kind::File)];
        assert!(merging.merge(Vec::new(), &mut naming(&mut series), at(71)).is_empty());
        assert!(merging.merge(next(), &mut naming(&mut series), at(72)).is_empty());
        let full = vec![(part("b", 60), Kind::File), (part("c", 60), Kind::File)];
        let planned = merging.merge(full, &mut naming(&mut series), at(73));
        assert_eq!(names(&planned), [("files-00044.tar".to_owned(), Form::Tar, vec!["b"])], "c waits, and 43 is taken");
    }

    #[test]
    fn who_meets_files_of_others_passes_many_of_them_with_few_questions_and_one_of_them_with_the_next_number() {
        const THEIRS: u64 = 10_000;
        let mut numbering = Numbering::default();
        let name_of = |number: u64| format!("files-{number:05}.tar").parse::<Name>().ok();
        let mut give = |met: Option<u64>| {
            let is_taken = |name: &Name| name.as_str() == "files-00003.tar";
            let given = match met {
                None => numbering.give("files-{sequence}.tar", name_of, &is_taken),
                Some(met) => numbering.give_another("files-{sequence}.tar", met, name_of, &is_taken),
            };
            given.expect("a name").1
        };
        assert_eq!((give(None), give(Some(1)), give(None)), (1, 2, 4), "3 is taken by a file of ours");
        // Fifty that were planned before any of them was met.
        let mut planned: Vec<u64> = (0..50).map(|_| give(None)).collect();
        let mut questions = 0;
        while planned.iter().any(|number| *number <= THEIRS) {
            for number in planned.iter_mut().filter(|number| **number <= THEIRS) {
                (*number, questions) = (give(Some(*number)), questions + 1);
            }
        }
        assert!(questions <= 50 * 14, "{questions} questions");
        assert!(planned.iter().all(|number| *number < 3 * THEIRS), "{planned:?}");
        planned.sort_unstable();
        assert!(planned.windows(2).all(|two| two[0] < two[1]), "no number is given twice");
    }

    #[test]
    fn templates_give_names_that_differ() {
        let template = |text: &str| text.parse::<Template>().map_err(|error| error.to_string());
        for (text, words) in [
            ("a.raw", "one name"),
            ("{sequence}-{day}", "in braces"),
            ("../{sequence}", "leads elsewhere"),
            (".{sequence}", "hidden"),
            ("{directory}.{sequence}", "hidden"),
            ("{sequence}.copied", "left alone"),
            ("{sequence}\n", "control"),
        ] {
            let error = template(text).expect_err(text);
            assert!(error.contains(words), "{error}");
        }
        let mut series = Numbering::default();
        let mut merging = Merging::new(
            Merge {
                bytes: 1,
                wait: Duration::ZERO,
                name: Some(template("/tape/{run}/{directory}/{sequence}.{extension}").expect("one")),
            },
            true,
        );
        let like_a_field =
            merging.merge(vec![(part("{sequence}/b", 5), Kind::File)], &mut naming(&mut series), Time(0));
        assert_eq!(like_a_field[0].name.as_str(), "tape/none/{sequence}/00001.tar");
        let complete = vec![
            (part("a.raw", 5), Kind::Events { run: RunId(1920), form: Form::Besiii }),
            (part("d/b", 5), Kind::File),
        ];
        let planned = merging.merge(complete, &mut naming(&mut series), Time(0));
        assert_eq!((planned[0].name.as_str(), planned[0].recipe.form), ("tape/001920/00001.raw", Form::Besiii));
        assert_eq!(planned[1].name.as_str(), "tape/none/d/00001.tar");
        // Where the merged name is too long, parts keep theirs.
        let long = ["d".repeat(250).as_str(); 15].join("/") + "/" + &"e".repeat(220) + "/f";
        let planned = merging.merge(vec![(part(&long, 5), Kind::File)], &mut naming(&mut series), Time(0));
        assert_eq!(planned[0].name.as_str(), long);
        assert_eq!(planned[0].recipe.form, Form::Concatenated);
    }
}

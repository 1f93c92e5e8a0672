//! Schemas of types, as they stand among the components of a description: closed, bounded, and each name once.
//!
//! The read form and the written form of a type may differ: a field that may be left out of a request is always in an answer. If both are
//! described and differ, the read form has the name with `Read` behind it.

use crate::http::typed::Shape;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

const COMPONENTS: &str = "#/components/schemas/";
/// Behind the name of a type that is read otherwise than it is written.
const READ: &str = "Read";
/// Before such a name, until it is known which it gets.
const MARK: &str = "read:";
/// Keywords with schemas of the same object as the schema around them.
const PARTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

/// Makes schemas, and collects those that have names.
pub(super) struct Shapes {
    read: SchemaGenerator,
    written: SchemaGenerator,
}

impl Shapes {
    pub fn new() -> Shapes {
        let settings = || {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = "/components/schemas".into();
                settings.meta_schema = None;
            })
        };
        let read = settings().for_deserialize().into_generator();
        Shapes { read, written: settings().for_serialize().into_generator() }
    }

    /// Of what is read. References in it are marked until it is known which names they get.
    pub fn read(&mut self, shape: Shape) -> Value {
        marked(tidy(shape(&mut self.read).to_value()))
    }

    /// Of what is written.
    pub fn written(&mut self, shape: Shape) -> Value {
        tidy(shape(&mut self.written).to_value())
    }

    /// The schemas that have names. References in `paths` get them.
    pub fn finish(self, paths: &mut Value) -> Value {
        let Shapes { mut read, mut written } = self;
        let read = whole(read.take_definitions(true));
        let mut all = whole(written.take_definitions(true));
        let apart = differing(&read, &all);
        let named = |name: &str| match name.strip_prefix(MARK) {
            Some(read) if apart.contains(read) => format!("{read}{READ}"),
            read => read.unwrap_or(name).to_owned(),
        };
        each_ref(paths, &named);
        for (name, schema) in read {
            let mut schema = marked(schema);
            each_ref(&mut schema, &named);
            all.insert(named(&format!("{MARK}{name}")), schema);
        }
        keep_used(&mut all, paths);
        Value::Object(all.into_iter().collect())
    }
}

/// Removes schemas that nothing refers to, such as one with fields that were copied into another.
fn keep_used(all: &mut BTreeMap<String, Value>, paths: &mut Value) {
    loop {
        let used = RefCell::new(BTreeSet::new());
        let note = |name: &str| {
            used.borrow_mut().insert(name.to_owned());
            name.to_owned()
        };
        each_ref(paths, &note);
        all.values_mut().for_each(|schema| each_ref(schema, &note));
        let before = all.len();
        let used = used.into_inner();
        all.retain(|name, _| used.contains(name));
        if all.len() == before {
            return;
        }
    }
}

/// Schemas with names, each closed. An object that has the fields of another one besides its own gets them: the other one is closed.
fn whole(definitions: Map<String, Value>) -> BTreeMap<String, Value> {
    let whole = |(name, schema): (&String, &Value)| {
        let mut schema = schema.clone();
        with_fields(&mut schema, &definitions);
        (name.clone(), tidy(schema))
    };
    definitions.iter().map(whole).collect()
}

/// Puts the fields of an object that is referred to beside those that stand there.
fn with_fields(schema: &mut Value, definitions: &Map<String, Value>) {
    match schema {
        Value::Object(fields) => {
            let other = fields.get("$ref").filter(|_| fields.contains_key("properties"));
            let other = other.and_then(Value::as_str).and_then(|link| definitions.get(link.strip_prefix(COMPONENTS)?));
            if let Some(Value::Object(other)) = other {
                fields.remove("$ref");
                for (keyword, more) in other {
                    match (fields.get_mut(keyword), more) {
                        (Some(Value::Object(own)), Value::Object(more)) => own.extend(more.clone()),
                        (Some(Value::Array(own)), Value::Array(more)) => own.extend(more.iter().cloned()),
                        (Some(_), _) => {}
                        (None, more) => {
                            fields.insert(keyword.clone(), more.clone());
                        }
                    }
                }
            }
            fields.values_mut().for_each(|below| with_fields(below, definitions));
        }
        Value::Array(all) => all.iter_mut().for_each(|below| with_fields(below, definitions)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Types that are read otherwise than they are written, by themselves or by what they hold.
fn differing(read: &BTreeMap<String, Value>, written: &BTreeMap<String, Value>) -> BTreeSet<String> {
    let both = || read.iter().filter_map(|(name, schema)| Some((name, schema, written.get(name)?)));
    let mut apart: BTreeSet<String> =
        both().filter(|(_, read, written)| read != written).map(|(name, ..)| name.clone()).collect();
    loop {
        let holds = |schema: &Value| {
            let mut schema = schema.clone();
            let found = Cell::new(false);
            each_ref(&mut schema, &|name| {
                found.set(found.get() || apart.contains(name));
                name.to_owned()
            });
            found.get()
        };
        let more: Vec<String> = both()
            .filter(|(name, read, _)| !apart.contains(*name) && holds(read))
            .map(|(name, ..)| name.clone())
            .collect();
        if more.is_empty() {
            return apart;
        }
        apart.extend(more);
    }
}

/// With references that are known to be of what is read.
fn marked(mut schema: Value) -> Value {
    each_ref(&mut schema, &|name| format!("{MARK}{name}"));
    schema
}

/// Closes objects, bounds numbers, and leaves links of comments out.
fn tidy(mut schema: Value) -> Value {
    bounded(&mut schema);
    close(&mut schema, false);
    schema
}

/// Objects hold what they say, and nothing else. `is_part`: the schema around it describes the same object.
fn close(schema: &mut Value, is_part: bool) {
    let Value::Object(fields) = schema else { return };
    let is_object = fields.contains_key("properties");
    let has_parts = PARTS.iter().any(|part| fields.contains_key(*part)) || fields.contains_key("$ref");
    if is_part {
        if fields.get("additionalProperties") == Some(&json!(false)) {
            fields.remove("additionalProperties");
        }
    } else if is_object && !fields.contains_key("additionalProperties") && !fields.contains_key("unevaluatedProperties")
    {
        let keyword = if has_parts { "unevaluatedProperties" } else { "additionalProperties" };
        fields.insert(keyword.to_owned(), json!(false));
    }
    for (keyword, below) in fields.iter_mut() {
        let same = PARTS.contains(&keyword.as_str());
        match below {
            Value::Array(all) => all.iter_mut().for_each(|one| close(one, same && (is_object || is_part))),
            Value::Object(all) if keyword == "properties" => all.values_mut().for_each(|one| close(one, false)),
            one @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
                if matches!(keyword.as_str(), "items" | "additionalProperties" | "not") {
                    close(one, false);
                }
            }
        }
    }
}

/// Numbers have the limits of their types, and texts no links.
fn bounded(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let most = match fields.get("format").and_then(Value::as_str) {
                Some("uint8") => Some(u8::MAX.into()),
                Some("uint16") => Some(u16::MAX.into()),
                Some("uint32") => Some(u32::MAX.into()),
                Some("uint64" | "uint") => Some(u64::MAX),
                _ => None,
            };
            if let Some(most) = most {
                fields.remove("format");
                fields.entry("maximum").or_insert(json!(most));
            }
            if let Some(Value::String(text)) = fields.get_mut("description") {
                *text = without_links(text);
            }
            fields.values_mut().for_each(bounded);
        }
        Value::Array(all) => all.iter_mut().for_each(bounded),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Renames what a schema refers to.
fn each_ref(schema: &mut Value, rename: &impl Fn(&str) -> String) {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(link)) = fields.get_mut("$ref")
                && let Some(name) = link.strip_prefix(COMPONENTS)
            {
                *link = format!("{COMPONENTS}{}", rename(name));
            }
            fields.values_mut().for_each(|below| each_ref(below, rename));
        }
        Value::Array(all) => all.iter_mut().for_each(|below| each_ref(below, rename)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Text with the words of links, and without where they lead.
pub(super) fn without_links(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('[') {
        plain.push_str(before);
        let Some((words, behind)) = behind.split_once(']') else {
            plain.push('[');
            rest = behind;
            continue;
        };
        plain.push_str(words);
        rest = behind.strip_prefix('(').and_then(|link| link.split_once(')')).map_or(behind, |(_, behind)| behind);
    }
    plain + rest
}

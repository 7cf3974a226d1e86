//! `docs/guide/flick.schema.json`, the JSON schema of `flick.toml`, is generated from the definitions of the options
//! and from what the settings file accepts. `UPDATE=1 cargo test -p flick schema` rewrites it.

use std::path::PathBuf;

use clap::Arg;
use serde_json::{Map, Value, json};

use super::reference::{help_of, key_of, options, parse_file, takes_value};

/// Tables that a service has as well as the file.
const OF_SERVICE: [&str; 5] = ["listen", "connect", "health", "limits", "timeouts"];

/// The schema of the value of a key.
fn schema_of(option: &Arg, table: &str, key: &str, is_opposite: bool) -> Value {
    let header = if table.is_empty() { String::new() } else { format!("[{table}]\n") };
    let accepts = |value: &str| parse_file("schema", &format!("{header}{key} = {value}\n")).is_ok();
    let (text, default) = help_of(option);
    let values: Vec<String> = match takes_value(option) {
        true => option.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect(),
        false => Vec::new(),
    };
    let mut schema = if !values.is_empty() {
        json!({ "enum": values })
    } else if accepts("true") {
        json!({ "type": "boolean" })
    } else if accepts("7") {
        // A variable of the environment is in quotes.
        json!({ "type": ["integer", "string"] })
    } else if accepts("[\"a\"]") {
        json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
    } else {
        json!({ "type": "string" })
    };
    let text = if is_opposite { format!("false: {text}") } else { text };
    let default = default.map(|default| format!(" Default: {default}.")).unwrap_or_default();
    schema["description"] = json!(format!("{text}{default}"));
    schema
}

fn table(properties: Map<String, Value>) -> Value {
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn schema() -> Value {
    let mut tables: std::collections::BTreeMap<&str, Map<String, Value>> = Default::default();
    for option in options() {
        match key_of(&option) {
            Some(("listen" | "connect", ..)) | None => {}
            Some((of, key, is_opposite)) => {
                let schema = schema_of(&option, of, &key, is_opposite);
                tables.entry(of).or_default().insert(key, schema);
            }
        }
    }
    let addresses = json!({ "anyOf": [
        { "type": "string" },
        { "type": "array", "items": { "type": "string" } },
    ] });
    let channels = json!({ "type": "object", "additionalProperties": addresses });
    let mut root = tables.remove("").unwrap_or_default();
    let mut service = tables.remove("service").unwrap_or_default();
    for (name, properties) in tables {
        root.insert(name.to_owned(), table(properties));
    }
    let mut include = addresses.clone();
    include["description"] =
        json!("Further files with services, relative to this one; `*` and `?` are wildcards.");
    root.insert("include".to_owned(), include);
    root.insert("listen".to_owned(), channels.clone());
    root.insert("connect".to_owned(), channels);
    for name in OF_SERVICE {
        service.insert(name.to_owned(), json!({ "$ref": format!("#/properties/{name}") }));
    }
    service.insert("state_dir".to_owned(), json!({ "$ref": "#/properties/state_dir" }));
    service.insert(
        "name".to_owned(),
        json!({ "type": "string", "description": "Name of the service. Default: that of its process." }),
    );
    let service = table(service);
    root.insert("service".to_owned(), json!({ "anyOf": [service, { "type": "array", "items": service }] }));
    let mut schema = table(root);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("flick.toml");
    schema
}

#[test]
fn schema_is_current() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/flick.schema.json");
    let expected = serde_json::to_string_pretty(&schema()).expect("strings, lists and tables") + "\n";
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        return std::fs::write(&path, expected).expect("the docs are writable");
    }
    let actual = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "docs/guide/flick.schema.json is not current; UPDATE=1 rewrites it");
}

/// The schema has the keys that an error for an unknown one lists, in every table.
#[test]
fn schema_has_every_key() {
    let schema = schema();
    let service = &schema["properties"]["service"]["anyOf"][0];
    for (header, known) in [
        ("", &schema),
        ("[admin]", &schema["properties"]["admin"]),
        ("[limits]", &schema["properties"]["limits"]),
        ("[timeouts]", &schema["properties"]["timeouts"]),
        ("[health]", &schema["properties"]["health"]),
        ("[tune]", &schema["properties"]["tune"]),
        ("[service]", service),
    ] {
        let error =
            parse_file("schema-keys", &format!("{header}\nqqqqqqqqqq = 1\n")).expect_err("no such key");
        let (_, listed) = error.split_once("the keys here are ").expect("the error lists the keys");
        let listed: Vec<&str> = listed.trim().split('`').skip(1).step_by(2).collect();
        let properties = known["properties"].as_object().expect("a table");
        assert!(
            !listed.is_empty() && listed.iter().all(|key| properties.contains_key(*key)),
            "{header}: {listed:?}"
        );
        assert_eq!(listed.len(), properties.len(), "{header}: {listed:?}");
    }
}

//! Validates the results against their JSON Schema, with only the keywords that the file uses.

use regex_lite::Regex;
use serde_json::{Map, Value};

/// Fails with what is wrong.
pub fn assert_valid(results: &Value) {
    if let Err(problem) = validate(results) {
        panic!("{problem}\n{results:#}");
    }
}

/// Compares results with the schema; members that it does not describe are wrong, too.
pub fn validate(results: &Value) -> Result<(), String> {
    let schema = include_str!("../../schema/results.schema.json");
    let schema: Value = serde_json::from_str(schema).expect("a schema in JSON");
    compare(results, &schema, "results")
}

fn compare(value: &Value, schema: &Value, at: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{at}: {value} is not {what}"));
    for (keyword, rule) in schema.as_object().expect("a schema is an object") {
        let holds = match keyword.as_str() {
            "$schema" | "$id" | "title" | "description" => true,
            "type" => is_of_type(value, rule),
            "const" => value == rule,
            "enum" => rule.as_array().expect("a list").contains(value),
            "minimum" => value
                .as_i64()
                .is_none_or(|number| Some(number) >= rule.as_i64()),
            "pattern" => {
                let pattern = Regex::new(rule.as_str().expect("a pattern")).expect("a pattern");
                value.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "required" => {
                let names = rule.as_array().expect("a list");
                names
                    .iter()
                    .all(|name| value.get(name.as_str().expect("a name")).is_some())
            }
            "properties" => {
                compare_members(value, rule.as_object().expect("an object"), at)?;
                true
            }
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    compare(item, rule, &format!("{at}[{index}]"))?;
                }
                true
            }
            other => panic!("teach this test the keyword {other}"),
        };
        if !holds {
            return wrong(&format!("of {keyword} {rule}"));
        }
    }
    Ok(())
}

fn compare_members(value: &Value, rules: &Map<String, Value>, at: &str) -> Result<(), String> {
    for (name, member) in value.as_object().into_iter().flatten() {
        let rule = rules
            .get(name)
            .ok_or(format!("{at}: {name} is not in the schema"))?;
        compare(member, rule, &format!("{at}.{name}"))?;
    }
    Ok(())
}

fn is_of_type(value: &Value, rule: &Value) -> bool {
    match rule {
        Value::Array(any) => any.iter().any(|rule| is_of_type(value, rule)),
        _ => match rule.as_str().expect("a type") {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "null" => value.is_null(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            other => panic!("teach this test the type {other}"),
        },
    }
}

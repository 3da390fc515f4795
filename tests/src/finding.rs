//! Findings in their JSON form.

use serde_json::Value;

/// Returns a finding's kind and form, like `leaked_address/del_blind`.
#[must_use]
pub fn kind_and_form(finding: &Value) -> String {
    let detail = &finding["detail"];
    let sub = [&detail["cause"], &detail["form"], &detail["how"]].into_iter().find_map(Value::as_str);
    let kind = finding["kind"].as_str().unwrap_or_default();
    sub.map_or_else(|| kind.to_owned(), |sub| format!("{kind}/{sub}"))
}

//! Findings in their JSON form.

use serde_json::Value;

/// `leaked_address/del_blind`: a finding's kind, and which one of its forms.
#[must_use]
pub fn word(finding: &Value) -> String {
    let detail = &finding["detail"];
    let sub = [&detail["cause"], &detail["form"], &detail["how"]].into_iter().find_map(Value::as_str);
    let kind = finding["kind"].as_str().unwrap_or_default();
    sub.map_or_else(|| kind.to_owned(), |sub| format!("{kind}/{sub}"))
}
